package weirhttp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

// The deadlines of a hijacked connection are the handler's, even if some of the request's body was left.
func TestServer_HijackedConnectionKeepsItsDeadlines(t *testing.T) {
	hijacked := make(chan net.Conn, 1)
	l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(yes()), Timeout: time.Minute}}))
	s := serve(t, weir.Must(l.Wrap())(handler(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadFull(r.Body, make([]byte, 1)) // sets the deadline
		assert.NoError(t, err)
		conn, _, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			assert.NoError(t, conn.SetReadDeadline(time.Now().Add(-time.Second)))
			hijacked <- conn
		}
		_, _ = r.Body.Read(make([]byte, 1)) // what the server has read already
	})), false)
	client, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
	conn := <-hijacked
	defer conn.Close()
	time.Sleep(20 * time.Millisecond)                                     // the handler returns
	defer time.AfterFunc(3*time.Second, func() { client.Close() }).Stop() // ends the Read if it has no deadline
	_, err = conn.Read(make([]byte, 10))
	var timedOut net.Error
	require.ErrorAs(t, err, &timedOut)
	assert.True(t, timedOut.Timeout())
}

// Over HTTP/1, net/http reads the rest of a body when the handler writes. Even then a slow client holds no permit
// beyond the Timeout.
func TestServer_SlowClientWhoseBodyIsNotRead(t *testing.T) {
	large := strings.Repeat("x", 1<<16)
	for name, h := range map[string]handler{
		"a large answer": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, large) },
		"a copied one":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader(large)) },
		"a stream":       func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			slots := concurrency(t, 1, 0)
			l := weir.Must(NewLimits(&LimitsOptions{
				Global:   Policy{Limit: Of(yes()), Timeout: time.Hour},
				Policies: map[string]Policy{"p": {Limit: Of(slots), Timeout: 100 * time.Millisecond}},
			}))
			s := serve(t, weir.Must(l.Wrap())(l.Handler(h, "p")), false)
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
			eventually(t, func() bool { return slots.Statistics().AvailablePermits == 0 }, "it holds the permit")
			require.Eventually(t, func() bool { return slots.Statistics().AvailablePermits == 1 }, 5*time.Second, time.Millisecond, "no longer")
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			response.Body.Close()
			assert.Equal(t, 200, response.StatusCode)
		})
	}
}

// A deadline that the handler sets applies if it is earlier than the Timeout, and cannot postpone the Timeout.
func TestServer_DeadlinesOfTheHandler(t *testing.T) {
	past, none := func() time.Time { return time.Now().Add(-time.Second) }, func() time.Time { return time.Time{} }
	for name, c := range map[string]struct {
		timeout  time.Duration
		deadline func() time.Time
	}{
		"the handler's is earlier": {time.Hour, past},
		"ours is earlier":          {50 * time.Millisecond, none},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && c.timeout < time.Hour {
				t.Skip("takes a second")
			}
			done := make(chan struct{})
			l := weir.Must(NewLimits(&LimitsOptions{
				Global:   Policy{Limit: Of(yes()), Timeout: time.Hour},
				Policies: map[string]Policy{"p": {Limit: Of(yes()), Timeout: c.timeout}},
			}))
			s := serve(t, weir.Must(l.Wrap())(l.Handler(handler(func(w http.ResponseWriter, r *http.Request) {
				defer close(done)
				control := http.NewResponseController(w)
				assert.NoError(t, control.SetReadDeadline(c.deadline()))
				_, err := io.ReadAll(r.Body)
				assert.Error(t, err)
				assert.NoError(t, control.SetWriteDeadline(c.deadline()))
				for err = nil; err == nil; {
					_, err = w.Write(make([]byte, 1<<16))
				}
			}), "p")), false)
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
			select {
			case <-done:
			case <-time.After(5 * time.Second):
				t.Error("it goes on")
			}
		})
	}
}

// Deadlines of the handler and of middleware further out stay in force.
func TestServer_DeadlinesOfTheProgramStay(t *testing.T) {
	l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(yes()), Timeout: time.Minute}, Policies: map[string]Policy{"p": {Limit: Of(yes()), Timeout: time.Second}}}))
	near, far := time.Now().Add(time.Second/2), time.Now().Add(time.Hour)
	raw := &deadlines{ResponseWriter: httptest.NewRecorder(), read: near, write: near}
	weir.Must(l.Wrap())(l.Handler(handler(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, "x")
		assert.True(t, raw.write.Equal(near), raw.write)
		assert.True(t, raw.read.Equal(near), raw.read)
		control := http.NewResponseController(w)
		assert.NoError(t, control.SetWriteDeadline(far))
		assert.NoError(t, control.SetReadDeadline(far))
	}), "p")).ServeHTTP(raw, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x")))
	assert.True(t, raw.write.Equal(far), raw.write)
	assert.True(t, raw.read.Equal(far), raw.read)
}

type deadlines struct {
	http.ResponseWriter
	read, write time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = t; return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }

func TestPolicy_Timeout(t *testing.T) {
	heard := &recording{}
	held := yes()
	l := weir.Must(NewLimits(&LimitsOptions{Listener: heard, Policies: map[string]Policy{
		"p": {Limit: Of(held), Timeout: time.Millisecond}, "longer": {Limit: Of(yes()), Timeout: time.Hour},
	}}))
	w := get(l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		cause, ok := context.Cause(r.Context()).(*TimeoutError)
		assert.True(t, ok)
		assert.True(t, cause.Timeout())
	}), "longer", "p"))
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, []string{"OnTimeout p"}, names(heard.events))
	assert.ErrorIs(t, heard.events[0].Err, pipeline.ErrRejected)
	assert.EqualError(t, heard.events[0].Err, "weirhttp: policy p: no answer within 1ms")
	held.check(t, 1, 1, 0) // it ran, so it cost
}
