package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
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
func measureFake(ctx context.Context, wire http.RoundTripper) (string, *load, error) {
	l := &load{
		targets: []target{{"one", "http://one"}, {"two", "http://two"}}, wire: wire,
		length: 6 * time.Second, every: 1001300 * time.Microsecond, // no request is due when a row ends
	}
	var out strings.Builder
	err := l.measure(ctx, &out, func() {})
	return out.String(), l, err
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

func TestLoad_Table(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, _, err := measureFake(t.Context(), &fakeService{latency: 3 * time.Millisecond, answer: oneEach(interval)})
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
func TestLoad_ServiceStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeService{latency: 4 * time.Second, answer: func(string, time.Duration) (int, string) { return 503, "40P01" }}
		out, l, err := measureFake(t.Context(), f)
		if err != nil {
			t.Error(err)
		}
		if len(l.samples) != 610 || len(f.times) != 2*299 {
			t.Errorf("%d requests, %d GETs", len(l.samples), len(f.times))
		}
		for _, s := range l.samples {
			if s.sent != s.due {
				t.Errorf("%+v was sent late", s)
			}
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

func TestLoad_OpenRequestsAreBounded(t *testing.T) {
	l := &load{targets: []target{{name: "one"}}, sent: []int{0}, open: []int{maxOpen - 1}, skipped: []int{0}, seen: map[string]bool{}}
	var out strings.Builder
	l.out = &out
	if !l.begin(0, false) || l.begin(0, false) || l.begin(0, false) || !l.begin(0, true) || l.skipped[0] != 2 || strings.Count(out.String(), "so the load sends no more") != 1 {
		t.Errorf("%+v\n%s", l.skipped, out.String())
	}
}

func TestLoad_TooManySuccesses(t *testing.T) {
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
				out, _, err := measureFake(t.Context(), &fakeService{latency: time.Millisecond, answer: answer})
				if !errors.Is(err, errTooMany) || !strings.Contains(out, "FAILED: ") {
					t.Errorf("%v\n%s", err, out)
				}
			})
		})
	}
}

// An interrupted load is judged by what it has sent, and the requests that are open then are not counted.
func TestLoad_Interrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := fmt.Errorf("stopped")
		defer time.AfterFunc(2900*time.Millisecond, func() { cancel(stopped) }).Stop()
		out, _, err := measureFake(ctx, &fakeService{latency: 150 * time.Millisecond, answer: oneEach(interval)})
		if !errors.Is(err, stopped) || strings.Contains(out, " × ") || !strings.Contains(out, "user-1: 2 successes, and 2 are allowed") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

func TestLoad_NoService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, err := measureFake(t.Context(), roundTripper(func(*http.Request) (*http.Response, error) {
			return nil, errors.New("dial: connection refused")
		}))
		if err == nil || err.Error() != "instance one: POST http://one/items/create: connection refused" {
			t.Error(err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The demo's ten minutes have the requests that its stages say, in order.
func TestLoad_Due(t *testing.T) {
	l := &load{length: 10 * time.Minute}
	due := l.gets()
	if len(due) != 900+4950+24_000 || !slices.IsSorted(due) || due[len(due)-1] >= l.length || allowed(l.length-1) != 300 {
		t.Errorf("%d requests, the last at %v", len(due), due[len(due)-1])
	}
	for second, want := range map[int]int{0: 5, 179: 5, 270: 28, 359: 50, 360: 100, 599: 100} {
		n := 0
		for _, d := range due {
			if int(d/time.Second) == second {
				n++
			}
		}
		if n < want-1 || n > want+1 {
			t.Errorf("%d requests in second %d, want %d", n, second, want)
		}
	}
}

// grant is a successful request that was sent, ran, and was answered at these times.
func grant(sent, ran, answered time.Duration) sample {
	return sample{status: 200, sent: sent, now: time.Unix(0, 0).Add(ran), answered: answered}
}

func TestJudge(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		grants []sample
		want   verdict
	}{
		"none": {nil, verdict{allowed: 1}},
		"one":  {[]sample{grant(0, s, s)}, verdict{granted: 1, allowed: 1, seconds: 1}},
		"a tick early, which the bucket can be": {
			[]sample{grant(0, 0, 0), grant(2*s, 2*s-tick, 2*s-tick)},
			verdict{granted: 2, allowed: 2, seconds: 1.999, closest: 1999 * time.Millisecond},
		},
		"earlier": {
			[]sample{grant(0, 0, 0), grant(s, 2*s-2*tick, 2*s-tick)},
			verdict{granted: 2, allowed: 1, seconds: 1.998, excess: 1, closest: 1999 * time.Millisecond},
		},
		// The first is granted in time but its answer is late, so it proves nothing.
		"close runs": {
			[]sample{grant(0, 2*s-s/2, 2*s), grant(2*s, 2*s, 2*s+s/2)},
			verdict{granted: 2, allowed: 2, seconds: 2, closest: 2500 * time.Millisecond},
		},
		"close, but not more than the limit from the start": {
			[]sample{grant(4*s, 4*s, 4*s), grant(5*s, 5*s, 5*s)},
			verdict{granted: 2, allowed: 3, seconds: 5, closest: s, tooClose: 1},
		},
		"too many at first, by answers that are late, and then none": {
			[]sample{grant(0, s/10, 3*s), grant(0, s/5, 3*s), grant(0, 9*s, 9*s)},
			verdict{granted: 3, allowed: 5, seconds: 9, excess: 1, closest: 3 * s},
		},
	} {
		others := []sample{{status: 429}, {status: 201, post: true}, {failure: "55P03"}}
		if got := judge(append(others, c.grants...), time.Unix(0, 0)); got != c.want {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, c.want)
		}
	}
}
