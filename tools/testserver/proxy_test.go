package testserver

import (
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo is the address of a server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	require.NoError(t, err)
}

func hear(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	_, err := io.ReadFull(conn, got)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

// hearNothing takes real time: that nothing comes cannot be seen otherwise.
func hearNothing(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
}

// ended waits for the end of the connection.
func ended(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// endsAtOnce checks that a new connection is closed. The dial itself fails if that happens before it returns.
func endsAtOnce(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return
	}
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	ended(t, conn)
}

func TestProxyDelay(t *testing.T) {
	p := NewProxy(t, echo(t))
	conn := connect(t, p.Addr())
	say(t, conn, "now")
	hear(t, conn, "now")

	// That it takes no less may be asserted: it does not depend on the machine.
	const delay = 30 * time.Millisecond
	p.Delay(delay)
	start := time.Now()
	say(t, conn, "later")
	hear(t, conn, "later")
	require.GreaterOrEqual(t, time.Since(start), 2*delay)
	p.Delay(0)
	say(t, conn, "again")
	hear(t, conn, "again")
}

func TestProxyCut(t *testing.T) {
	p := NewProxy(t, echo(t))
	conn := connect(t, p.Addr())
	say(t, conn, "x")
	hear(t, conn, "x")
	p.Delay(time.Hour)
	say(t, conn, "never")
	p.Cut()
	ended(t, conn)
	require.Zero(t, p.Connections())

	p.Delay(0)
	conn = connect(t, p.Addr())
	say(t, conn, "y")
	hear(t, conn, "y")
}

func TestProxyBlackhole(t *testing.T) {
	p := NewProxy(t, echo(t))
	quiet, loud := connect(t, p.Addr()), connect(t, p.Addr())
	for _, conn := range []net.Conn{quiet, loud} {
		say(t, conn, "x")
		hear(t, conn, "x")
	}

	p.Blackhole(true)
	say(t, loud, "lost")
	hearNothing(t, loud)
	late := connect(t, p.Addr())
	say(t, late, "lost")
	hearNothing(t, late)

	p.Blackhole(false)
	ended(t, loud)
	ended(t, late)
	say(t, quiet, "still")
	hear(t, quiet, "still")
}

func TestProxyWithoutServer(t *testing.T) {
	port, err := freePort()
	require.NoError(t, err)
	p := NewProxy(t, (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String())
	endsAtOnce(t, p.Addr())

	p.Blackhole(true)
	conn := connect(t, p.Addr())
	hearNothing(t, conn)
	p.Blackhole(false)
	ended(t, conn)
}

func TestProxyConcurrentSafe(t *testing.T) {
	p := NewProxy(t, echo(t))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				conn, err := net.Dial("tcp", p.Addr())
				if err != nil {
					continue
				}
				_ = conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
				_, _ = conn.Write([]byte("x"))
				_, _ = conn.Read(make([]byte, 1))
				conn.Close()
			}
		})
	}
	for i := range 50 {
		p.Delay(time.Duration(i%3) * time.Millisecond)
		p.Blackhole(i%5 == 0)
		p.Refuse(i%7 == 0)
		if i%4 == 0 {
			p.Cut()
		}
		_ = p.Connections()
		time.Sleep(time.Millisecond) // real time, so that the others meet every state
	}
	p.Blackhole(false)
	wg.Wait()
}
