package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// A transportFunc is a base of an Upstream.
type transportFunc func(r *http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func newUpstream(t *testing.T, base transportFunc, urls ...string) *Upstream {
	t.Helper()
	addresses := make([]*Address, len(urls))
	for i, text := range urls {
		u, err := url.Parse(text)
		require.NoError(t, err)
		addresses[i] = NewAddress(u, weir.Must(pipeline.New(u.Host, circuitbreaker.New(&circuitbreaker.Options{
			ConsecutiveFailures: 1, BreakDuration: time.Hour,
		}))))
	}
	return New("test", base, addresses...)
}

// within is a context with an Exchange.
type within struct {
	context.Context
	exchange Exchange
}

func (w *within) Value(key any) any {
	if key == (Key{}) {
		return &w.exchange
	}
	return w.Context.Value(key)
}

// send sends a request and closes the answer.
func send(u *Upstream, r *http.Request) error {
	resp, err := u.RoundTrip(r)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func newRequest(t *testing.T, ctx context.Context, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://test/a%2Fb?c", body)
	require.NoError(t, err)
	return r
}

// TestUpstream_LeastRunning checks that requests go where fewer run: with two addresses, the other one is always known.
func TestUpstream_LeastRunning(t *testing.T) {
	var hosts []string
	u := newUpstream(t, func(r *http.Request) (*http.Response, error) {
		hosts = append(hosts, r.URL.Host)
		return answer(r)
	}, "http://a", "http://b")
	var all []*within
	for range 100 {
		x := &within{Context: t.Context()}
		all = append(all, x)
		err := send(u, newRequest(t, x, nil))
		require.NoError(t, err)
	}
	assert.Equal(t, 50, strings.Count(strings.Join(hosts, ""), "a"))
	for _, a := range u.addresses {
		assert.EqualValues(t, 50, a.running.Load(), "they run until they end, not until the answer begins")
	}
	for _, x := range all {
		x.exchange.End()
	}
	for _, a := range u.addresses {
		assert.Zero(t, a.running.Load())
	}
}

// TestUpstream_Attempts checks that the attempts of a request go to different addresses, as long as there are any.
func TestUpstream_Attempts(t *testing.T) {
	u := newUpstream(t, answer, "http://a", "http://b", "http://c")
	for range 20 {
		x := &within{Context: t.Context()}
		seen := map[string]int{}
		for range 3 {
			err := send(u, newRequest(t, x, nil))
			require.NoError(t, err)
			_, address := x.exchange.Attempts()
			seen[address]++
		}
		assert.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, seen)
		err := send(u, newRequest(t, x, nil))
		require.NoError(t, err)
		n, _ := x.exchange.Attempts()
		assert.Equal(t, 4, n)
		x.exchange.End()
	}
}

func TestUpstream_Unreachable(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	var sent string
	u := newUpstream(t, func(r *http.Request) (*http.Response, error) {
		if r.URL.Host == "down" {
			_ = r.Body.Close() // as http.Transport does
			return nil, dial
		}
		body, err := io.ReadAll(r.Body)
		sent = string(body)
		require.NoError(t, err)
		return answer(r)
	}, "http://down", "http://up/base")
	down := u.addresses[0]
	for range 10 {
		x := &within{Context: t.Context()}
		r := newRequest(t, x, strings.NewReader("body"))
		r.GetBody = nil
		err := send(u, r)
		require.NoError(t, err)
		assert.Equal(t, "body", sent)
		n, address := x.exchange.Attempts()
		assert.Equal(t, "up", address)
		assert.LessOrEqual(t, n, 2)
		x.exchange.End()
	}
	assert.Zero(t, down.running.Load())

	alone := newUpstream(t, func(*http.Request) (*http.Response, error) { return nil, dial }, "http://down")
	err := send(alone, newRequest(t, t.Context(), nil))
	require.ErrorIs(t, err, dial)
	err = send(alone, newRequest(t, t.Context(), nil))
	unavailable, ok := errors.AsType[*UnavailableError](err)
	require.True(t, ok, err)
	after, known := unavailable.RetryAfter()
	assert.True(t, known)
	assert.Greater(t, after, 59*time.Minute)
	assert.False(t, unavailable.Retryable())
	assert.EqualError(t, err, "upstream test: no address is available")
}

// TestUpstream_NotRepeated checks that a request of which something may have been sent is not sent again.
func TestUpstream_NotRepeated(t *testing.T) {
	calls := 0
	u := newUpstream(t, func(r *http.Request) (*http.Response, error) {
		calls++
		_, _ = r.Body.Read(make([]byte, 1))
		return nil, &net.OpError{Op: "read", Err: errors.New("reset")}
	}, "http://a", "http://b")
	err := send(u, newRequest(t, t.Context(), strings.NewReader("body")))
	require.Error(t, err)
	assert.Equal(t, 1, calls)
}

// TestUpstream_BodyOfClient checks that a body that cannot be read opens no circuit.
func TestUpstream_BodyOfClient(t *testing.T) {
	broken := errors.New("broken")
	u := newUpstream(t, func(r *http.Request) (*http.Response, error) {
		_, err := io.ReadAll(r.Body)
		return nil, err
	}, "http://a")
	for range 3 {
		err := send(u, newRequest(t, t.Context(), io.MultiReader(strings.NewReader("a"), &failing{broken})))
		require.ErrorIs(t, err, broken)
		_, ok := errors.AsType[*ClientError](err)
		assert.True(t, ok)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

func TestAddress_Locate(t *testing.T) {
	for base, want := range map[string]string{
		"http://h":         "http://h/a%2Fb?c",
		"https://h:1/":     "https://h:1/a%2Fb?c",
		"http://h/x/y":     "http://h/x/y/a%2Fb?c",
		"http://h/x%2Fy/":  "http://h/x%2Fy/a%2Fb?c",
		"http://[::1]:1/x": "http://[::1]:1/x/a%2Fb?c",
	} {
		u := newUpstream(t, func(r *http.Request) (*http.Response, error) {
			assert.Equal(t, want, r.URL.String())
			return answer(r)
		}, base)
		err := send(u, newRequest(t, t.Context(), nil))
		require.NoError(t, err)
	}
}

// TestExchange_LateConcurrentSafe has attempts that return after the request has ended, as those of a hedge can.
func TestExchange_LateConcurrentSafe(t *testing.T) {
	u := newUpstream(t, answer, "http://a", "http://b")
	for range 50 {
		x := &within{Context: t.Context()}
		var attempts sync.WaitGroup
		for range 3 {
			attempts.Go(func() { _ = send(u, newRequest(t, x, nil)) })
		}
		x.exchange.End()
		attempts.Wait()
	}
	for _, a := range u.addresses {
		assert.Zero(t, a.running.Load())
	}
}

func TestNewTransport_Files(t *testing.T) {
	_, err := NewTransport(TransportOptions{CA: t.TempDir() + "/none"})
	assert.ErrorContains(t, err, "none")
	_, err = NewTransport(TransportOptions{Certificate: "/none", Key: "/none"})
	assert.ErrorContains(t, err, "/none")
}
