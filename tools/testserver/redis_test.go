package testserver

import (
	"bufio"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRedisIsShared(t *testing.T) {
	s := Redis(t)
	require.Equal(t, "+PONG", redis(t, s.Addr(), "PING"))
	require.Same(t, s, Redis(t))
	if s.Own() {
		require.Equal(t, "redis://"+s.Addr()+"/0", s.URL)
	}
}

func TestNewRedisIsAnother(t *testing.T) {
	s := NewRedis(t)
	require.True(t, s.Own())
	require.NotEqual(t, Redis(t).Addr(), s.Addr())
	require.Equal(t, "+PONG", redis(t, s.Addr(), "PING"))
}

func TestNewRedisArguments(t *testing.T) {
	s := NewRedis(t, "--cluster-enabled", "yes")
	require.Contains(t, redis(t, s.Addr(), "INFO cluster"), "cluster_enabled:1")
}

func TestNewRedisWithAPassword(t *testing.T) {
	s := NewRedis(t, "--requirepass", "secret")
	require.Contains(t, redis(t, s.Addr(), "PING"), "-NOAUTH")
}

func TestRedisKillAndRestart(t *testing.T) {
	s := NewRedis(t)
	require.Equal(t, "+OK", redis(t, s.Addr(), "SET k v"))
	open := connect(t, s.Addr())

	s.Kill()
	require.True(t, refused(s.Addr()))
	_, err := open.Read(make([]byte, 1))
	require.Error(t, err)
	s.Kill() // of what is dead is nothing

	addr := s.Addr()
	require.NoError(t, s.Restart(false))
	require.Equal(t, addr, s.Addr())
	require.Equal(t, "$-1", redis(t, addr, "GET k"))
}

func TestRedisRestartKeepsWhatItWrites(t *testing.T) {
	s := NewRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	require.Equal(t, "+OK", redis(t, s.Addr(), "SET k v"))
	require.NoError(t, s.Restart(false)) // without Kill before it
	require.Equal(t, "v", redis(t, s.Addr(), "GET k"))
	require.NoError(t, s.Restart(true))
	require.Equal(t, "$-1", redis(t, s.Addr(), "GET k"))
}

func TestRedisPause(t *testing.T) {
	s := NewRedis(t)
	conn := connect(t, s.Addr())
	s.Pause()
	s.Pause()
	_, err := io.WriteString(conn, "PING\r\n")
	require.NoError(t, err)
	// Real time passes here: that no answer comes cannot be seen otherwise.
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	s.Resume()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "+PONG\r\n", line)
}

func TestPausedRedisCanBeKilledAndRestarted(t *testing.T) {
	s := NewRedis(t)
	s.Pause()
	s.Kill()
	require.True(t, refused(s.Addr()))
	require.NoError(t, s.Restart(false))
	s.Pause()
	require.NoError(t, s.Restart(false))
	require.Equal(t, "+PONG", redis(t, s.Addr(), "PING"))
	s.Pause() // the end of the test stops a paused server
}

func TestStopLeavesNothing(t *testing.T) {
	s := NewRedis(t)
	dir := s.own.dir
	s.Stop()
	require.True(t, refused(s.Addr()))
	require.NoDirExists(t, dir)
	require.ErrorContains(t, s.Restart(false), "after Stop")
	s.Kill()
	s.Stop()
}

func TestRedisThatDoesNotStart(t *testing.T) {
	if !Redis(t).Own() {
		t.Skip("there may be none to start here")
	}
	_, err := startRedis(t.Context(), []string{"--no-such-setting", "1"})
	require.ErrorContains(t, err, "no-such-setting") // from its log
	require.ErrorIs(t, err, errEnded)
}
