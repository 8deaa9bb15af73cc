package weirhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// readFull reads until p is full or the body ends.
func readFull(resp *http.Response, p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m, err := resp.Body.Read(p[n:])
		n += m
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// endless is a body that never ends, with a delay before each Read.
type endless struct {
	each time.Duration
	read int
	done chan struct{}
}

func (e *endless) Read(p []byte) (int, error) {
	if e.each > 0 {
		select {
		case <-time.After(e.each):
		case <-e.done:
			return 0, errors.New("closed")
		}
	}
	p = p[:min(len(p), 100)]
	e.read += len(p)
	return len(p), nil
}

func (e *endless) Close() error {
	select {
	case <-e.done:
	default:
		close(e.done)
	}
	return nil
}

func TestTransport_DrainsAtMostFourKiB(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &endless{done: make(chan struct{})}
		base := &fakeBase{answer: func(r *http.Request, number int) (*http.Response, error) {
			if number > 0 {
				return inTurn(200)(r, number)
			}
			resp := answering(503)
			resp.Body = body
			return resp, nil
		}}
		transport := roundTripper(t, base, nil, retrying(retry.Options{}))
		resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		readAll(t, resp)
		assert.Equal(t, 4096, body.read)
		assert.EqualValues(t, 2, base.closed.Load())
	})
}

// A server that sends the body of a failure slowly does not hold up the next attempt.
func TestTransport_DrainsForAShortTimeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &endless{each: time.Second, done: make(chan struct{})}
		base := &fakeBase{answer: func(r *http.Request, number int) (*http.Response, error) {
			if number > 0 {
				return inTurn(200)(r, number)
			}
			resp := answering(503)
			resp.Body = body
			return resp, nil
		}}
		transport := roundTripper(t, base, nil, retrying(retry.Options{Delay: time.Second}))
		began := time.Now()
		resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		readAll(t, resp)
		assert.Equal(t, 1050*time.Millisecond, time.Since(began))
		assert.EqualValues(t, 2, base.closed.Load())
	})
}

// duplex is the body of a response to an upgrade.
type duplex struct {
	io.ReadCloser
	written []byte
}

func (d *duplex) Write(p []byte) (int, error) {
	d.written = append(d.written, p...)
	return len(p), nil
}

// plainBase is a base that does not change bodies.
type plainBase func(*http.Request) (*http.Response, error)

func (f plainBase) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransport_Upgrade(t *testing.T) {
	body := &duplex{ReadCloser: textBody("hello")}
	var ctx context.Context
	base := plainBase(func(r *http.Request) (*http.Response, error) {
		ctx = r.Context()
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: body, Request: r}, nil
	})
	resp, err := roundTripper(t, base, nil, timeout.New(time.Minute, nil)).RoundTrip(newRequest(t, http.MethodGet, url, ""))
	require.NoError(t, err)
	defer resp.Body.Close()
	both, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	_, err = both.Write([]byte("hi"))
	require.NoError(t, err)
	assert.Equal(t, "hi", string(body.written))
	text, err := io.ReadAll(both)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(text))
	assert.NoError(t, ctx.Err(), "it may be written after the other side has no more to say")
	assert.NoError(t, both.Close())
	assert.Error(t, ctx.Err())
}

func TestTransport_NoBody(t *testing.T) {
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		var ctx context.Context
		base := plainBase(func(r *http.Request) (*http.Response, error) {
			ctx = r.Context()
			return &http.Response{StatusCode: http.StatusNoContent, Body: body, Request: r}, nil
		})
		resp, err := roundTripper(t, base, nil, timeout.New(time.Minute, nil)).RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		assert.Equal(t, http.NoBody, resp.Body)
		assert.Error(t, ctx.Err(), "an empty body need not be closed")
		assert.NoError(t, resp.Body.Close())
	}
}

// Close ends a Read that waits.
func TestTransport_CloseWhileReadingConcurrentSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := plainBase(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: &endless{each: time.Hour, done: make(chan struct{})}, Request: r}, nil
		})
		resp, err := roundTripper(t, base, nil, timeout.New(time.Minute, nil)).RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { _ = resp.Body.Close() })
		began := time.Now()
		_, err = resp.Body.Read(make([]byte, 10))
		assert.ErrorContains(t, err, "closed")
		assert.Equal(t, time.Second, time.Since(began))
	})
}

// If a retry handles a response that is not a failure, it stays open until the end, and is closed then.
func TestTransport_RetriesByTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: inTurn(404, 404, 200)}
		transport := roundTripper(t, base, nil, retrying(retry.Options{Handle: pipeline.HandleResult(func(resp *http.Response, _ error) bool {
			return resp != nil && resp.StatusCode == http.StatusNotFound
		})}))
		resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		assert.EqualValues(t, 2, base.closed.Load())
		assert.Equal(t, "OK", readAll(t, resp))
		assert.EqualValues(t, 3, base.closed.Load())
	})
}

// If a strategy still reads the body of a failure when the next attempt begins, the body is not buffered. It is closed
// in the end, and its attempt ends.
func TestTransport_FailureThatAStrategyReadsIsClosed(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			base := &fakeBase{answer: func(r *http.Request, number int) (*http.Response, error) {
				if number > 0 {
					return inTurn(200)(r, number)
				}
				resp := answering(503)
				resp.Body = &endless{each: time.Hour, done: make(chan struct{})}
				return resp, nil
			}}
			read := make(chan error, 1)
			strategy := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
				value, err := next.Run(ctx)
				resp, _ := value.(*http.Response)
				require.NotNil(t, resp, "%v", err)
				go func() {
					_, err := resp.Body.Read(make([]byte, 10))
					read <- err
				}()
				synctest.Wait() // it reads
				value, err = next.Run(ctx)
				if panics {
					panic("bad")
				}
				return value, err
			})
			transport := roundTripper(t, base, nil, strategy, timeout.New(time.Minute, nil))
			began := time.Now()
			if panics {
				assert.PanicsWithValue(t, "bad", func() { _ = failing(t, transport, newRequest(t, http.MethodGet, url, "")) })
			} else {
				resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
				require.NoError(t, err)
				readAll(t, resp)
			}
			assert.ErrorContains(t, <-read, "closed")
			assert.Zero(t, time.Since(began))
			assert.EqualValues(t, 2, base.closed.Load())
			assert.Error(t, base.requests[0].Context().Err(), "the attempt has ended")
		})
	}
}
