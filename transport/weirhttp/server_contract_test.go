package weirhttp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// wrappings returns the middleware that the package can put around a handler. "nothing" is the reference: net/http
// alone.
func wrappings(t time.Duration) map[string]func(http.Handler) http.Handler {
	return map[string]func(http.Handler) http.Handler{
		"nothing":                 func(h http.Handler) http.Handler { return h },
		"a policy":                weir.Must(weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(yes())}})).Wrap()),
		"a policy's Timeout":      weir.Must(weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(yes()), Timeout: t}})).Wrap()),
		"a timeout in a pipeline": Through(weir.Must(pipeline.New("t", timeout.New(t, nil))), nil),
		"Measure":                 Measure(discardRecorder{}, nil),
		"both": func(h http.Handler) http.Handler {
			return weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(yes()), Timeout: t}})).Handler(
				Through(weir.Must(pipeline.New("t", timeout.New(2*t, nil))), nil)(h))
		},
	}
}

// serveWith is serve with a server that set changes.
func serveWith(t testing.TB, h http.Handler, http2 bool, set func(*http.Server)) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	set(s.Config)
	s.EnableHTTP2 = http2
	if http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	t.Cleanup(s.Client().CloseIdleConnections)
	return s
}

func everyWrapping(t *testing.T, limit time.Duration, test func(t *testing.T, wrap func(http.Handler) http.Handler, http2 bool)) {
	for name, wrap := range wrappings(limit) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			versions(t, func(t *testing.T, http2 bool) { test(t, wrap, http2) })
		})
	}
}

// A client that is still connected is served after the server's ReadTimeout has passed, and so is the next request on
// its connection.
func TestServer_ReadTimeoutEndsNoLiveClient(t *testing.T) {
	const readTimeout = 500 * time.Millisecond
	everyWrapping(t, time.Minute, func(t *testing.T, wrap func(http.Handler) http.Handler, http2 bool) {
		var begun atomic.Int64
		s := serveWith(t, wrap(handler(func(w http.ResponseWriter, r *http.Request) {
			begun.Add(1)
			_, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			select {
			case <-r.Context().Done():
				t.Error("the context has ended: ", context.Cause(r.Context()))
			case <-time.After(readTimeout + readTimeout/2):
			}
			_, _ = io.WriteString(w, r.RemoteAddr)
		})), http2, func(s *http.Server) {
			s.ReadTimeout = readTimeout
			s.IdleTimeout = time.Minute
		})
		connection := ""
		for i := range int64(2) {
			response, err := s.Client().Do(request(t, s, strings.NewReader("body")))
			for err != nil && begun.Load() == i { // the machine was too slow for ReadTimeout, which bounds TLS's handshake, too
				response, err = s.Client().Do(request(t, s, strings.NewReader("body")))
			}
			require.NoError(t, err)
			addr, err := io.ReadAll(response.Body)
			response.Body.Close()
			require.NoError(t, err)
			assert.Equal(t, http.StatusOK, response.StatusCode)
			assert.True(t, i == 0 || connection == string(addr), "another connection")
			connection = string(addr)
		}
	})
}

// The requests of a client that does not wait for answers are served in order.
func TestServer_PipelinedRequests(t *testing.T) {
	const readTimeout = 200 * time.Millisecond
	for name, wrap := range wrappings(time.Minute) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var begun atomic.Bool
			s := serveWith(t, wrap(handler(func(w http.ResponseWriter, r *http.Request) {
				begun.Store(true)
				body, _ := io.ReadAll(r.Body)
				<-time.After(readTimeout + readTimeout/2)
				assert.NoError(t, r.Context().Err())
				_, _ = w.Write(body)
			})), false, func(s *http.Server) { s.ReadTimeout = readTimeout; s.IdleTimeout = time.Minute })
			three := func() error {
				conn, err := net.Dial("tcp", s.Listener.Addr().String())
				require.NoError(t, err)
				defer conn.Close()
				fmt.Fprint(conn, strings.Repeat("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok", 3))
				in := bufio.NewReader(conn)
				for range 3 {
					response, err := http.ReadResponse(in, nil)
					if err != nil {
						return err
					}
					body, err := io.ReadAll(response.Body)
					response.Body.Close()
					require.NoError(t, err)
					assert.Equal(t, "ok", string(body))
				}
				return nil
			}
			err := three()
			for err != nil && !begun.Load() { // the machine was too slow to send them within ReadTimeout
				err = three()
			}
			require.NoError(t, err)
		})
	}
}

// The server's own timeouts stay in force, and so do deadlines that middleware further out has set.
func TestServer_OwnTimeoutsStay(t *testing.T) {
	const short = 300 * time.Millisecond
	deadline := func(set func(*http.ResponseController, time.Time) error) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return handler(func(w http.ResponseWriter, r *http.Request) {
				assert.NoError(t, set(http.NewResponseController(w), time.Now().Add(short)))
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
		"ReadTimeout":    {plain, func(s *http.Server) { s.ReadTimeout = short }, true},
		"WriteTimeout":   {plain, func(s *http.Server) { s.WriteTimeout = short }, false},
		"read deadline":  {deadline((*http.ResponseController).SetReadDeadline), func(*http.Server) {}, true},
		"write deadline": {deadline((*http.ResponseController).SetWriteDeadline), func(*http.Server) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			everyWrapping(t, time.Minute, func(t *testing.T, wrap func(http.Handler) http.Handler, http2 bool) {
				failed := make(chan error, 1)
				s := serveWith(t, c.outside(wrap(handler(func(w http.ResponseWriter, r *http.Request) {
					var err error
					if c.reads {
						_, err = io.ReadAll(r.Body)
					} else {
						for err == nil {
							_, err = w.Write(make([]byte, 1<<16))
						}
					}
					select {
					case failed <- err:
					default:
					}
				}))), http2, c.set)
				var body io.Reader
				if c.reads {
					body = slowLoris(t)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r := request(t, s, body).WithContext(ctx)
				go func() {
					for ctx.Err() == nil && len(failed) == 0 { // again if the handshake of TLS was too slow
						if response, err := s.Client().Do(r); err == nil {
							<-ctx.Done() // it does not read
							response.Body.Close()
						}
					}
				}()
				select {
				case err := <-failed:
					assert.Error(t, err)
				case <-time.After(20 * time.Second):
					t.Error("the deadline is not in force")
				}
			})
		})
	}
}

// An answer after the end of its handler's time is delivered, over every version of HTTP.
func TestServer_LateAnswerIsDelivered(t *testing.T) {
	everyWrapping(t, 20*time.Millisecond, func(t *testing.T, wrap func(http.Handler) http.Handler, http2 bool) {
		s := serve(t, wrap(handler(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			<-time.After(20*time.Millisecond + handlerio.WriteGrace + 100*time.Millisecond)
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
	for name, wrap := range wrappings(20 * time.Millisecond) {
		if !strings.Contains(name, "imeout") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			versions(t, func(t *testing.T, http2 bool) {
				s := serveWith(t, wrap(handler(func(w http.ResponseWriter, _ *http.Request) {
					_, err := io.WriteString(w, "begin")
					_ = http.NewResponseController(w).Flush()
					<-time.After(20*time.Millisecond + handlerio.WriteGrace + 50*time.Millisecond)
					assert.NoError(t, err)
					_, err = io.WriteString(w, "end")
					assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
				})), http2, func(*http.Server) {})
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
			for name, wrap := range wrappings(time.Minute) {
				if name == "nothing" {
					continue // net/http leaves the files of a handler that panics
				}
				versions(t, func(t *testing.T, http2 bool) {
					s := serveWith(t, wrap(handler(func(_ http.ResponseWriter, r *http.Request) {
						assert.NoError(t, r.ParseMultipartForm(1))
						files, err := os.ReadDir(dir)
						assert.NoError(t, err)
						assert.Len(t, files, 1)
						ends()
					})), http2, func(*http.Server) {})
					contentType, body := form(t)
					r := request(t, s, body)
					r.Header.Set("Content-Type", contentType)
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					if response, err := s.Client().Do(r.WithContext(ctx)); err == nil {
						_, _ = io.Copy(io.Discard, response.Body)
						response.Body.Close()
					}
					eventually(t, func() bool {
						files, err := os.ReadDir(dir)
						return err == nil && len(files) == 0
					}, name)
				})
			}
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
				seen := false
				h := wrap(mux)
				s := serve(t, handler(func(w http.ResponseWriter, r *http.Request) {
					defer func() {
						assert.Equal(t, panics, recover() != nil)
						seen = true
						assert.Equal(t, "POST /orders/{id}/{rest...}", r.Pattern)
						assert.Equal(t, "7", r.PathValue("id"))
						assert.Equal(t, "a/b", r.PathValue("rest"))
						assert.Equal(t, "value", r.Form.Get("name"))
						assert.Equal(t, "value", r.PostForm.Get("name"))
						assert.NotNil(t, r.MultipartForm)
					}()
					h.ServeHTTP(w, r)
				}), false)
				contentType, body := form(t)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/orders/7/a/b", body)
				require.NoError(t, err)
				r.Header.Set("Content-Type", contentType)
				do(t, s, r)
				assert.True(t, seen)
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
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n")
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			assert.Equal(t, "1", string(body))
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
	const clients, each = 8, 40
	versions(t, func(t *testing.T, http2 bool) {
		slots, keyed := concurrency(t, 4, 100), keyedBuckets(t, 1<<20)
		l := weir.Must(NewLimits(&LimitsOptions{
			Headers: Draft11, Global: Policy{Limit: Of(slots), Timeout: time.Minute},
			Policies: map[string]Policy{"p": {Limit: ByKey(keyed, nil), Quota: 10, Metered: true}},
		}))
		p := weir.Must(pipeline.New("t", timeout.New(30*time.Second, nil)))
		s := serveWith(t, l.Handler(Through(p, nil)(l.Handler(handler(func(w http.ResponseWriter, r *http.Request) {
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
		eventually(t, func() bool { return slots.Statistics().AvailablePermits == 4 }, "all permits are back")
	})
}
