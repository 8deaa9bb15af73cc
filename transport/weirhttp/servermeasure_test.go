package weirhttp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

// A measured is what a RequestRecorder got of a request.
type measured struct {
	method, scheme, route string
	status                int
	errorType             string
}

// recorder keeps what it got.
type recorder struct {
	mu       sync.Mutex
	requests []measured
	took     []time.Duration
}

func (r *recorder) RecordRequest(_ context.Context, method, scheme, route string, status int, errorType string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, measured{method, scheme, route, status, errorType})
	r.took = append(r.took, took)
}

func (r *recorder) all() []measured {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]measured(nil), r.requests...)
}

// distinct returns how many series a telemetry would make.
func (r *recorder) distinct() int {
	series := map[measured]bool{}
	for _, m := range r.all() {
		series[m] = true
	}
	return len(series)
}

// one returns the only request.
func (r *recorder) one(t *testing.T) measured {
	t.Helper()
	all := r.all()
	require.Len(t, all, 1)
	return all[0]
}

func TestMeasure(t *testing.T) {
	p := weir.Must(pipeline.New("t", timeout.New(time.Minute, nil)))
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{
		"yes": {Limit: Of(yes())}, "no": {Limit: Of(no())}, "p": Policy{Limit: ByPipeline(p)}, "timed": {Limit: Of(yes()), Timeout: time.Hour},
	}}))
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", l.Handler(served, "yes", "timed", "p"))
	mux.Handle("example.com/hosts/{rest...}", Through(p, nil)(saying("page")))
	mux.Handle("POST example.com/orders", answering(201))
	mux.Handle("/limited", l.Handler(served, "yes", "no"))
	mux.Handle("/teapot", answering(418))
	mux.Handle("/broken", answering(502))
	mux.Handle("/early", handler(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		w.WriteHeader(http.StatusAccepted)
		w.WriteHeader(http.StatusInternalServerError) // superfluous
	}))
	mux.Handle("/hints", handler(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) }))
	mux.Handle("/tree/", http.StripPrefix("/tree", saying("leaf")))
	for _, c := range []struct {
		method, target string
		want           measured
	}{
		{"GET", "/orders/7", measured{"GET", "http", "/orders/{id}", 200, ""}},
		{"HEAD", "/orders/7", measured{"HEAD", "http", "/orders/{id}", 200, ""}},
		{"GET", "/hosts/a/b", measured{"GET", "http", "/hosts/{rest...}", 200, ""}},
		{"POST", "/orders", measured{"POST", "http", "/orders", 201, ""}},
		{"GET", "/limited", measured{"GET", "http", "/limited", 429, ""}},
		{"GET", "/teapot", measured{"GET", "http", "/teapot", 418, ""}},
		{"GET", "/broken", measured{"GET", "http", "/broken", 502, "502"}},
		{"GET", "/early", measured{"GET", "http", "/early", 202, ""}},
		{"GET", "/hints", measured{"GET", "http", "/hints", 200, ""}},
		{"GET", "/tree/x", measured{"GET", "http", "/tree/", 200, ""}},
		{"GET", "/tree", measured{"GET", "http", "/tree/", 307, ""}},
		{"QUERY", "/tree/x", measured{"QUERY", "http", "/tree/", 200, ""}},
		{"DELETE", "/orders", measured{"DELETE", "http", "", 405, ""}},
		{"GET", "/nothing", measured{"GET", "http", "", 404, ""}},
		{"BREW", "/teapot", measured{"_OTHER", "http", "/teapot", 418, ""}},
		{"get", "/teapot", measured{"_OTHER", "http", "/teapot", 418, ""}},
		{"GET", "https://example.com/teapot", measured{"GET", "https", "/teapot", 418, ""}},
	} {
		t.Run(c.method+" "+c.target, func(t *testing.T) {
			var rec recorder
			r := httptest.NewRequest(c.method, c.target, nil)
			Measure(&rec, nil)(mux).ServeHTTP(httptest.NewRecorder(), r)
			assert.Equal(t, c.want, rec.one(t))
			assert.Equal(t, c.want.route, routeOfMux(r), "outside, too")
		})
	}
	assert.Panics(t, func() { Measure(nil, nil) })
	assert.Panics(t, func() { Measure((*recorder)(nil), nil) })
	assert.Panics(t, func() { Measure(&recorder{}, nil)(nil) })
}

func TestMeasure_Duration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec recorder
		get(Measure(&rec, nil)(handler(func(http.ResponseWriter, *http.Request) { time.Sleep(3 * time.Second) })))
		assert.Equal(t, []time.Duration{3 * time.Second}, rec.took)
	})
}

// Whatever a client or an upstream sends, there are few different values.
func TestMeasure_HostileRequestsMakeNoSeries(t *testing.T) {
	var rec recorder
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", served)
	mux.Handle("/{tenant}/orders/", served)
	mux.Handle("/any/{status}", handler(func(w http.ResponseWriter, r *http.Request) {
		var status int
		_, err := fmt.Sscan(r.PathValue("status"), &status)
		assert.NoError(t, err)
		w.WriteHeader(status)
	}))
	s := serve(t, Measure(&rec, nil)(mux), false)
	send := func(lines string) {
		conn := s.dial()
		defer conn.Close()
		fmt.Fprint(conn, lines+"\r\nHost: x\r\nConnection: close\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	}
	for i := range 100 {
		send(fmt.Sprintf("M%d /orders/%d HTTP/1.1", i, i))
		send(fmt.Sprintf("GET /none/%d HTTP/1.1", i))
		send(fmt.Sprintf("GET http://h%d/orders/%d HTTP/1.1", i, i))
		send(fmt.Sprintf("CONNECT /t%d/orders HTTP/1.1", i)) // the mux redirects it, with the path as the pattern
		send(fmt.Sprintf("CONNECT h%d:443 HTTP/1.1", i))
	}
	assert.Less(t, rec.distinct(), 7)
	rec.requests = nil
	for status := 200; status <= 999; status++ {
		send(fmt.Sprintf("GET /any/%d HTTP/1.1", status))
	}
	statuses := map[int]bool{}
	for _, m := range rec.all() {
		statuses[m.status] = true
		assert.NotEmpty(t, http.StatusText(m.status)+map[int]string{499: "499"}[m.status], m.status)
		assert.Equal(t, m.status >= 500, m.errorType != "")
	}
	assert.Less(t, len(statuses), 65)
	assert.Equal(t, 500, knownStatus(799))
	assert.Equal(t, 400, knownStatus(420))
	assert.Equal(t, 499, knownStatus(499))
}

// A handler that panics, or ends its goroutine, has not answered, or only in part.
func TestMeasure_Aborted(t *testing.T) {
	abort := func() { panic(http.ErrAbortHandler) }
	for name, end := range map[string]func(){
		"ErrAbortHandler": abort, "a panic": func() { panic("boom") }, "Goexit": runtime.Goexit,
	} {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", begun), func(t *testing.T) {
				var rec recorder
				h := Measure(&rec, nil)(handler(func(w http.ResponseWriter, _ *http.Request) {
					if begun {
						w.WriteHeader(http.StatusCreated)
					}
					end()
				}))
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					get(h)
				}()
				<-done
				want := measured{"GET", "http", "", 0, "aborted"}
				if begun {
					want.status = http.StatusCreated
				}
				assert.Equal(t, want, rec.one(t))
			})
		}
	}
	var rec recorder
	r := httptest.NewRequest(http.MethodGet, "/orders/7", nil)
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", handler(func(http.ResponseWriter, *http.Request) { panic("boom") }))
	assert.PanicsWithValue(t, "boom", func() { Measure(&rec, nil)(mux).ServeHTTP(httptest.NewRecorder(), r) })
	assert.Equal(t, "/orders/{id}", rec.one(t).route)
}

// A handler whose client has gone can return without an answer. That is no success.
func TestMeasure_ClientHasGone(t *testing.T) {
	versions(t, func(t *testing.T, http2 bool) {
		var rec recorder
		begun := make(chan struct{})
		waits := handler(func(_ http.ResponseWriter, r *http.Request) {
			close(begun)
			<-r.Context().Done()
		})
		s := serve(t, Measure(&rec, nil)(waits), http2)
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			<-begun
			leave()
		}()
		_, err := s.Client().Do(request(t, s, nil).WithContext(ctx)) //nolint:bodyclose // there is no response
		require.Error(t, err)
		synctest.Wait()
		assert.Equal(t, StatusClientClosedRequest, rec.one(t).status)
	})

	var rec recorder
	slots := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(concurrencyInUse(t))}}))
	gone, leave := context.WithCancel(t.Context())
	leave()
	r := httptest.NewRequestWithContext(gone, http.MethodGet, "/", nil)
	Measure(&rec, nil)(slots.Handler(served)).ServeHTTP(httptest.NewRecorder(), r)
	assert.Equal(t, measured{"GET", "http", "", StatusClientClosedRequest, ""}, rec.one(t), "while it waited for a permit")

	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	rec = recorder{}
	Measure(&rec, nil)(served).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(late, http.MethodGet, "/", nil))
	assert.Equal(t, measured{"GET", "http", "", http.StatusOK, ""}, rec.one(t), "a deadline has passed, and the server sends an empty 200")
}

func TestMeasure_HijackedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec recorder
		s := serve(t, Measure(&rec, nil)(wrapped(t, handler(func(w http.ResponseWriter, r *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if !assert.NoError(t, err) {
				return
			}
			defer conn.Close()
			fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = rw.Flush()
			_, _ = rw.ReadString('\n') // until the client closes the connection
		}))), false)
		conn := s.dial()
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		response.Body.Close()
		assert.Empty(t, rec.all(), "it is measured when it has ended")
		conn.Close()
		synctest.Wait()
		assert.Equal(t, measured{"GET", "http", "", 101, ""}, rec.one(t))
	})
}

// A request is measured once. The inner middleware finds the route that foreign middleware hides.
func TestMeasure_Nested(t *testing.T) {
	hides := func(next http.Handler) http.Handler {
		return handler(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKeyForTest{}, 1)))
		})
	}
	late := make(chan struct{})
	timesOut := func(next http.Handler) http.Handler {
		return http.TimeoutHandler(next, time.Millisecond, "")
	}
	for _, c := range []struct {
		name    string
		between func(http.Handler) http.Handler
		inner   bool
		path    string
		want    measured
	}{
		{"hidden", hides, false, "/orders/7", measured{"GET", "http", "", 418, ""}},
		{"around the handler", hides, true, "/orders/7", measured{"GET", "http", "/orders/{id}", 418, ""}},
		{"around the mux", func(h http.Handler) http.Handler { return hides(Measure(&recorder{}, nil)(h)) }, false, "/orders/7", measured{"GET", "http", "/orders/{id}", 418, ""}},
		{"http.TimeoutHandler", func(h http.Handler) http.Handler { return timesOut(Measure(&recorder{}, nil)(h)) }, false, "/slow", measured{"GET", "http", "", 503, "503"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rec, innerRec recorder
			mux := http.NewServeMux()
			h := answering(418)
			if c.inner {
				h = Measure(&innerRec, nil)(h)
			}
			mux.Handle("/orders/{id}", h)
			mux.Handle("/slow", handler(func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				<-late
			}))
			w := httptest.NewRecorder()
			Measure(&rec, nil)(c.between(mux)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.path, nil))
			assert.Equal(t, c.want, rec.one(t))
			assert.Empty(t, innerRec.all())
		})
	}
	close(late)
}

func TestMeasure_Route(t *testing.T) {
	var rec recorder
	o := &MeasureOptions{Route: func(r *http.Request) string { return "of " + r.Pattern }}
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", served)
	Measure(&rec, o)(mux).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/orders/7", nil))
	assert.Equal(t, "of /orders/{id}", rec.one(t).route)
}

// The method of a request keeps the whole request line in memory, so a known method is a constant.
func TestMeasure_MethodIsAConstant(t *testing.T) {
	method := strings.Clone(http.MethodGet)
	known := knownMethod(method)
	assert.Equal(t, method, known)
	assert.NotSame(t, unsafe.StringData(method), unsafe.StringData(known))
}

func TestMeasure_Allocations(t *testing.T) {
	var none discardRecorder
	h, r, w := Measure(none, nil)(served), keyedRequest(), discardWriter{make(http.Header)}
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }), 2.0)
}

type discardRecorder struct{}

func (discardRecorder) RecordRequest(context.Context, string, string, string, int, string, time.Duration) {
}
