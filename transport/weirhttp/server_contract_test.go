package weirhttp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// A client that is still connected is served after the server's ReadTimeout has passed, and so is the next request on
// its connection.
func TestServer_ReadTimeoutEndsNoLiveClient(t *testing.T) {
	everyWrapping(t, time.Minute, func(t *testing.T, wrap func(http.Handler) http.Handler, http2 bool) {
		s := serve(t, wrap(handler(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			select {
			case <-r.Context().Done():
				t.Error("the context has ended: ", context.Cause(r.Context()))
			case <-time.After(2 * time.Second):
			}
			_, _ = io.WriteString(w, r.RemoteAddr)
		})), http2, func(s *http.Server) { s.ReadTimeout, s.IdleTimeout = time.Second, time.Minute })
		for range 2 {
			status, connection := do(t, s, request(t, s, strings.NewReader("body")))
			assert.Equal(t, http.StatusOK, status)
			assert.Equal(t, "192.0.2.1:1", connection)
		}
	})
}

// The requests of a client that does not wait for answers are served in order.
func TestServer_PipelinedRequests(t *testing.T) {
	everyWrapping(t, time.Minute, func(t *testing.T, wrap func(http.Handler) http.Handler, http2 bool) {
		if http2 {
			return
		}
		s := serve(t, wrap(handler(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			time.Sleep(2 * time.Second)
			assert.NoError(t, r.Context().Err())
			_, _ = w.Write(body)
		})), false, func(s *http.Server) { s.ReadTimeout, s.IdleTimeout = time.Second, time.Minute })
		in := s.raw(t, strings.Repeat("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok", 3))
		for range 3 {
			response, err := http.ReadResponse(in, nil)
			require.NoError(t, err)
			_, body := read(t, response)
			assert.Equal(t, "ok", body)
		}
	})
}

// The server's own timeouts stay in force, and so do deadlines that middleware further out has set.
func TestServer_OwnTimeoutsStay(t *testing.T) {
	deadline := func(set func(*http.ResponseController, time.Time) error) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return handler(func(w http.ResponseWriter, r *http.Request) {
				_ = set(http.NewResponseController(w), time.Now().Add(time.Second))
				next.ServeHTTP(w, r)
			})
		}
	}
	plain := func(h http.Handler) http.Handler { return h }
	for name, c := range map[string]struct {
		outside func(http.Handler) http.Handler
		set     func(*http.Server)
		reads   bool
	}{
		"ReadTimeout":    {plain, func(s *http.Server) { s.ReadTimeout = time.Second }, true},
		"WriteTimeout":   {plain, func(s *http.Server) { s.WriteTimeout = time.Second }, false},
		"read deadline":  {deadline((*http.ResponseController).SetReadDeadline), func(*http.Server) {}, true},
		"write deadline": {deadline((*http.ResponseController).SetWriteDeadline), func(*http.Server) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			everyWrapping(t, time.Minute, func(t *testing.T, wrap func(http.Handler) http.Handler, http2 bool) {
				failed := make(chan error, 1)
				s := serve(t, c.outside(wrap(handler(func(w http.ResponseWriter, r *http.Request) {
					var err error
					if c.reads {
						_, err = io.ReadAll(r.Body)
					} else {
						for err == nil {
							_, err = w.Write(make([]byte, 1<<16))
						}
					}
					failed <- err
				}))), http2, c.set)
				var body io.Reader
				if c.reads {
					body = slowLoris(t)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began, r := time.Now(), request(t, s, body).WithContext(ctx)
				go func() {
					if response, err := s.Client().Do(r); err == nil {
						<-ctx.Done() // it does not read
						response.Body.Close()
					}
				}()
				assert.Error(t, <-failed)
				assert.LessOrEqual(t, time.Since(began), time.Second)
			})
		})
	}
}

// An answer after the end of its handler's time is delivered, over every version of HTTP.
func TestServer_LateAnswerIsDelivered(t *testing.T) {
	everyWrapping(t, time.Second, func(t *testing.T, wrap func(http.Handler) http.Handler, http2 bool) {
		s := serve(t, wrap(handler(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			time.Sleep(time.Second + 2*handlerio.WriteGrace)
			_, _ = io.WriteString(w, strings.Repeat("late", 1000))
		})), http2)
		for range 2 {
			status, body := do(t, s, request(t, s, strings.NewReader("x")))
			assert.Equal(t, http.StatusOK, status)
			assert.Len(t, body, 4000)
		}
	})
}

// A client does not take a stream that was cut off for a complete answer.
func TestServer_CutStreamIsNoWholeAnswer(t *testing.T) {
	for _, name := range []string{"a policy's Timeout", "a timeout in a pipeline"} {
		t.Run(name, func(t *testing.T) {
			versions(t, func(t *testing.T, http2 bool) {
				s := serve(t, wrappings(time.Second)[name](handler(func(w http.ResponseWriter, _ *http.Request) {
					_, err := io.WriteString(w, "begin")
					_ = http.NewResponseController(w).Flush()
					time.Sleep(time.Second + 2*handlerio.WriteGrace)
					assert.NoError(t, err)
					_, err = io.WriteString(w, "end")
					assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
				})), http2)
				response, err := s.Client().Do(request(t, s, nil))
				require.NoError(t, err)
				defer response.Body.Close()
				_, err = io.ReadAll(response.Body)
				assert.Error(t, err, "the client takes it for whole")
			})
		})
	}
}

// form returns a form with a file that is too large for memory.
func form(t testing.TB) (contentType string, body io.Reader) {
	var text bytes.Buffer
	w := multipart.NewWriter(&text)
	require.NoError(t, w.WriteField("name", "value"))
	f, err := w.CreateFormFile("file", "file")
	require.NoError(t, err)
	_, _ = f.Write(make([]byte, 1<<20))
	require.NoError(t, w.Close())
	return w.FormDataContentType(), &text
}

func TestServer_TemporaryFilesAreRemoved(t *testing.T) {
	for name, ends := range map[string]func(){
		"returns": func() {},
		"panics":  func() { panic("a mistake of the program") },
		"aborts":  func() { panic(http.ErrAbortHandler) },
		"exits":   func() { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			files := func() int {
				files, err := os.ReadDir(dir)
				assert.NoError(t, err)
				return len(files)
			}
			everyWrapping(t, time.Minute, func(t *testing.T, wrap func(http.Handler) http.Handler, http2 bool) {
				s := serve(t, Measure(discardRecorder{}, nil)(wrap(handler(func(_ http.ResponseWriter, r *http.Request) { // net/http alone leaves the files of a handler that panics
					assert.NoError(t, r.ParseMultipartForm(1))
					assert.Equal(t, 1, files())
					ends()
				}))), http2)
				contentType, body := form(t)
				r := request(t, s, body)
				r.Header.Set("Content-Type", contentType)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if response, err := s.Client().Do(r.WithContext(ctx)); err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
				synctest.Wait()
				assert.Zero(t, files())
			})
		})
	}
}

// Middleware further out sees what a mux and ParseForm write to the request, as it does without weir, even if the
// handler panics.
func TestServer_RequestIsFilledForMiddlewareOutside(t *testing.T) {
	for name, wrap := range wrappings(time.Minute) {
		for _, panics := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, panics %v", name, panics), func(t *testing.T) {
				mux := http.NewServeMux()
				mux.Handle("POST /orders/{id}/{rest...}", handler(func(_ http.ResponseWriter, r *http.Request) {
					assert.NoError(t, r.ParseMultipartForm(1<<21))
					if panics {
						panic(http.ErrAbortHandler)
					}
				}))
				contentType, body := form(t)
				r := httptest.NewRequest(http.MethodPost, "/orders/7/a/b", body)
				r.Header.Set("Content-Type", contentType)
				func() {
					defer func() { assert.Equal(t, panics, recover() != nil) }()
					wrap(mux).ServeHTTP(httptest.NewRecorder(), r)
				}()
				assert.Equal(t, "POST /orders/{id}/{rest...}", r.Pattern)
				assert.Equal(t, "7", r.PathValue("id"))
				assert.Equal(t, "a/b", r.PathValue("rest"))
				assert.Equal(t, "value", r.Form.Get("name"))
				assert.Equal(t, "value", r.PostForm.Get("name"))
				assert.NotNil(t, r.MultipartForm)
			})
		}
	}
}

// A trailer that was not announced is set when the body has been read.
func TestServer_Trailer(t *testing.T) {
	for name, wrap := range wrappings(time.Minute) {
		t.Run(name, func(t *testing.T) {
			s := serve(t, wrap(handler(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				_, _ = io.WriteString(w, r.Trailer.Get("X-Sum"))
			})), false)
			in := s.raw(t, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n")
			response, err := http.ReadResponse(in, nil)
			require.NoError(t, err)
			_, body := read(t, response)
			assert.Equal(t, "1", body)
		})
	}
}

func TestServer_TooLargeBodyClosesTheConnection(t *testing.T) {
	for name, wrap := range wrappings(time.Minute) {
		t.Run(name, func(t *testing.T) {
			s := serve(t, wrap(handler(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 10))
				assert.Error(t, err)
				http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			})), false)
			response, err := s.Client().Do(request(t, s, strings.NewReader(strings.Repeat("x", 1000))))
			require.NoError(t, err)
			response.Body.Close()
			assert.True(t, response.Close)
		})
	}
}

// Many clients at the same time, some of which hang up, with handlers some of which panic: nothing is left behind.
// TestMain checks the goroutines.
func TestServer_AbortsAndPanicsConcurrentSafe(t *testing.T) {
	const clients, each = 16, 40
	for _, http2 := range []bool{false, true} {
		var granted, leases atomic.Int64
		heard := listenerOf(func(e pipeline.Event) {
			switch {
			case e.Source.Strategy != "global":
			case e.Name == ratelimit.MeasureLease:
				leases.Add(1)
			case e.Err == nil:
				granted.Add(1)
			}
		})
		slots, keyed := concurrency(t, 4, 100), keyedBuckets(t, 1<<20)
		l := weir.Must(NewLimits(&LimitsOptions{
			Listener: heard, Headers: Draft11, Global: Policy{Limit: Of(slots), Timeout: time.Minute},
			Policies: map[string]Policy{"p": {Limit: ByKey(keyed, nil), Quota: 10, Metered: true}},
		}))
		p := weir.Must(pipeline.New("t", timeout.New(30*time.Second, nil)))
		s := serve(t, l.Handler(Through(p, nil)(l.Handler(handler(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.CopyN(w, r.Body, 100)
			_, _ = Charge(r.Context(), 1)
			switch r.Header.Get("X-Do") {
			case "panic":
				panic(http.ErrAbortHandler)
			case "hang":
				_, _ = io.Copy(io.Discard, r.Body) // over HTTP/1 only then the client is seen to go
				<-r.Context().Done()
			}
			_, _ = io.Copy(w, r.Body)
		}), "p"))), http2, func(s *http.Server) { s.ReadTimeout, s.WriteTimeout = 10*time.Second, 10*time.Second })
		done := make(chan struct{})
		for i := range clients {
			go func() {
				defer func() { done <- struct{}{} }()
				for j := range each {
					ctx, cancel := context.WithCancel(t.Context())
					r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(strings.Repeat("x", 1000*j)))
					if !assert.NoError(t, err) {
						cancel()
						return
					}
					r.Header.Set("X-Do", []string{"", "panic", "hang", ""}[(i+j)%4])
					if (i+j)%4 == 2 {
						time.AfterFunc(time.Millisecond, cancel)
					}
					if response, err := s.Client().Do(r); err == nil {
						_, _ = io.Copy(io.Discard, response.Body)
						response.Body.Close()
					}
					cancel()
				}
			}()
		}
		for range clients {
			<-done
		}
		require.Eventually(t, func() bool { return slots.Statistics().AvailablePermits == 4 }, 10*time.Second, time.Millisecond, "all permits are back")
		assert.Equal(t, granted.Load(), leases.Load())
		assert.Positive(t, granted.Load())
	}
}

// listenerOf returns a Listener that measures, and calls f with all measurements.
func listenerOf(f func(pipeline.Event)) pipeline.Listener { return measuring{f} }

type measuring struct{ f func(pipeline.Event) }

func (m measuring) Hooks() pipeline.Hooks {
	return pipeline.Hooks{OnMeasurement: func(_ context.Context, e pipeline.Event) func(context.Context, pipeline.Event) {
		m.f(e)
		return func(_ context.Context, e pipeline.Event) { m.f(e) }
	}}
}
