package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// a fakeService answers like two instances that share a limit, without a network: with fake time.
type fakeService struct {
	latency time.Duration
	// answer decides about a GET at a time since the start.
	answer func(host string, at time.Duration) (status int, failure string)

	mu    sync.Mutex
	start time.Time
	times []time.Duration // of the GETs
}

func (f *fakeService) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.start.IsZero() {
		f.start = time.Now()
	}
	at := time.Since(f.start)
	status, failure := http.StatusCreated, ""
	if r.Method == http.MethodGet {
		f.times = append(f.times, at)
		status, failure = f.answer(r.URL.Host, at)
	}
	now := time.Now()
	f.mu.Unlock()
	defer f.mu.Lock()
	select {
	case <-time.After(f.latency):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	body, err := json.Marshal(answer{User: "user-1", Now: now})
	if err != nil {
		return nil, err
	}
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(body)))}
	if r.Method == http.MethodGet {
		resp.Header.Set(serverTiming, "limiter;dur=1.500")
	}
	if failure != "" {
		resp.Header.Set(limiterError, failure)
	}
	return resp, nil
}

// oneEach grants the first request in each interval, as the limit wants it, to either instance in turn.
func oneEach(interval time.Duration) func(string, time.Duration) (int, string) {
	next, host, other := time.Duration(0), "one", "two"
	return func(from string, at time.Duration) (int, string) {
		if at < next || from != host {
			return http.StatusTooManyRequests, ""
		}
		next, host, other = at+interval, other, host
		return http.StatusOK, ""
	}
}

// measureFake runs a load of 6 seconds with a row for each.
func measureFake(t *testing.T, ctx context.Context, f *fakeService) (string, *verdict, error) {
	t.Helper()
	l := loadFlags{length: 6 * time.Second, posts: 1, users: 1, every: 1001300 * time.Microsecond} // no request is due when a row ends
	all, err := l.loads([]target{{"one", "http://one"}, {"two", "http://two"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	all.wire = f
	var out strings.Builder
	r, err := l.measure(ctx, all, variants[0], &out)
	if r != nil {
		err = errors.Join(err, l.conclude(r, &out))
	}
	return out.String(), r, err
}

// The rows of a load of six seconds for a service that answers within 3 ms.
const rows = `
          -- one ----------------------------   -- two ----------------------------   -- all ---------------------
   time   sent   ok    429 fail  open     p99   sent   ok    429 fail  open     p99   ok so far  limiter p99  POST
     1s      6    1      4    .     1  3.0 ms      6    .      5    .     1  3.0 ms      1 of 1       1.5 ms     2
     2s      5    .      6    .     .  3.0 ms      5    .      6    .     .  3.0 ms      1 of 2       1.5 ms     2
     3s     23    .     23    .     .  3.0 ms     23    1     22    .     .  3.0 ms      2 of 2       1.5 ms     4
     4s     66    .     65    .     1  3.0 ms     66    .     65    .     1  3.0 ms      2 of 3       1.5 ms     2
     5s    100    1     99    .     1  3.0 ms    100    .    100    .     1  3.0 ms      3 of 3       1.5 ms     2
     6s     99    .    100    .     .  3.0 ms     99    .    100    .     .  3.0 ms      3 of 4       1.5 ms     .
`

func TestLoads_Table(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, _, err := measureFake(t, t.Context(), &fakeService{latency: 3 * time.Millisecond, answer: oneEach(interval)})
		if err != nil {
			t.Error(err)
		}
		if !strings.HasPrefix(out, "ok: granted;") || !strings.Contains(out, rows) {
			t.Errorf("the rows are others:\n%s", out)
		}
		for _, want := range []string{
			"user-1: 3 successes, and 3 are allowed", "limiter, granted          3     1.5 ms", "limiter, rejected       595     1.5 ms",
			"POST created             12     3.0 ms", "The limit held, and each of 598 requests had its decision.",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
		}
	})
}

// The load does not wait for answers: every request is sent when it is due, and the pile of open requests is shown.
func TestLoads_ServiceStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeService{latency: 4 * time.Second, answer: func(string, time.Duration) (int, string) { return 503, "40P01" }}
		out, r, err := measureFake(t, t.Context(), f)
		if err != nil {
			t.Error(err)
		}
		if r.Late.Count != 610 || r.Late.Max != 0 || len(f.times) != 2*299 || r.Instances[0].GET.Failed != 299 || r.Failures["40P01"] != 598 {
			t.Errorf("%d requests, %+v", len(f.times), r)
		}
		for _, want := range []string{
			"the first 40P01: a deadlock", "598 × 40P01", "The limit held, but 598 of 598 requests had no decision.",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
		}
	})
}

func TestLoads_OpenRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeService{latency: 9 * time.Second, answer: oneEach(interval)}
		const excess = 7
		l := loadFlags{posts: 0.001, users: 1}
		all, err := l.loads([]target{{"one", "http://one"}}, constant(1000, maxOpen+excess))
		if err != nil {
			t.Fatal(err)
		}
		all.wire = f
		var out strings.Builder
		r, err := l.measure(t.Context(), all, variants[0], &out)
		if err != nil {
			t.Fatal(err)
		}
		if r.Instances[0].Skipped != excess || len(f.times) != maxOpen || !strings.Contains(out.String(), "so the load sends no more") {
			t.Errorf("%d requests, %+v\n%s", len(f.times), r.Instances, out.String())
		}
	})
}

func TestLoads_TooManySuccesses(t *testing.T) {
	for name, answer := range map[string]func(string, time.Duration) (int, string){
		"all":         func(string, time.Duration) (int, string) { return http.StatusOK, "" },
		"fast refill": oneEach(interval - 50*time.Millisecond),
		"fixed windows": func() func(string, time.Duration) (int, string) {
			windows := map[time.Duration]bool{}
			return func(_ string, at time.Duration) (int, string) {
				if w := (at + 1500*time.Millisecond) / interval; !windows[w] {
					windows[w] = true
					return http.StatusOK, ""
				}
				return http.StatusTooManyRequests, ""
			}
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out, r, err := measureFake(t, t.Context(), &fakeService{latency: time.Millisecond, answer: answer})
				if !errors.Is(err, errTooMany) || !r.TooMany || !strings.Contains(out, "FAILED: ") {
					t.Errorf("%v\n%s", err, out)
				}
			})
		})
	}
}

// An interrupted load is judged by what it has sent, and the requests that are open then are not counted.
func TestLoads_Interrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := fmt.Errorf("stopped")
		defer time.AfterFunc(2900*time.Millisecond, func() { cancel(stopped) }).Stop()
		out, r, err := measureFake(t, ctx, &fakeService{latency: 150 * time.Millisecond, answer: oneEach(interval)})
		if !errors.Is(err, stopped) || r.Granted != 2 || len(r.Failures) != 0 || !strings.Contains(out, "user-1: 2 successes, and 2 are allowed") {
			t.Errorf("%v, %+v\n%s", err, r, out)
		}
	})
}

func TestLoads_NoService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loadFlags{length: time.Second, posts: 1, users: 1}
		all, err := l.loads([]target{{"one", "http://one"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		all.wire = roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("dial: connection refused") })
		if _, err := l.measure(t.Context(), all, variants[0], io.Discard); err == nil ||
			err.Error() != "instance one: POST http://one/items/create: connection refused" {
			t.Error(err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
