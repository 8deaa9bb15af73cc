package weirhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/transport/weirhttp"
)

// What real servers send, or have sent.
func TestQuotasOf(t *testing.T) {
	const date = "Sun, 29 Nov 2026 12:00:00 GMT"
	at := weir.Must(http.ParseTime(date))
	for _, test := range []struct {
		name   string
		fields []string // names and values in turn
		want   []weirhttp.Quota
	}{
		{"draft 11", []string{"RateLimit-Policy", `"burst";q=100;w=60,"daily";q=1000;w=86400;qu="requests"`, "RateLimit", `"burst";r=50;t=30, "daily";r=0`}, []weirhttp.Quota{
			{Name: "burst", Limit: 100, Remaining: 50, Window: time.Minute, Reset: 30 * time.Second},
			{Name: "daily", Limit: 1000, Remaining: 0, Window: 24 * time.Hour},
		}},
		{"draft 11 on several lines, with a partition key and an escaped name", []string{
			"RateLimit-Policy", `"a\"b";q=10;pk=:c2RmO2ZzOw==:;w=1`, "RateLimit", `"a\"b";pk="x;r=3,y";r=9`, "RateLimit", `"other";r=1`,
		}, []weirhttp.Quota{
			{Name: `a"b`, Limit: 10, Remaining: 9, Window: time.Second}, {Name: "other", Remaining: 1},
		}},
		{"draft 11, a line of which is malformed", []string{"RateLimit", `default;r=5`, "RateLimit", `"x";r=-1`, "RateLimit", `"y";r=1e3`, "RateLimit", `"z";r=3`},
			[]weirhttp.Quota{{Name: "z", Remaining: 3}}},
		{"draft 7", []string{"RateLimit", "limit=100, remaining=50, reset=5", "RateLimit-Policy", "100;w=10"}, []weirhttp.Quota{{Limit: 100, Remaining: 50, Reset: 5 * time.Second}}},
		{"draft 6", []string{"RateLimit-Limit", "10, 10;w=1, 50;w=60", "RateLimit-Remaining", "9", "RateLimit-Reset", "50"}, []weirhttp.Quota{{Limit: 10, Remaining: 9, Reset: 50 * time.Second}}},
		{"GitHub", []string{"X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4999", "X-RateLimit-Reset", strconv.FormatInt(at.Unix()+3000, 10), "X-RateLimit-Resource", "core", "X-RateLimit-Used", "1"},
			[]weirhttp.Quota{{Name: "core", Limit: 5000, Remaining: 4999, Reset: 50 * time.Minute}}},
		{"OpenAI", []string{
			"x-ratelimit-limit-requests", "60", "x-ratelimit-limit-tokens", "150000", "x-ratelimit-remaining-requests", "59",
			"x-ratelimit-remaining-tokens", "149984", "x-ratelimit-reset-requests", "1s", "x-ratelimit-reset-tokens", "6m0s",
		}, []weirhttp.Quota{
			{Name: "requests", Limit: 60, Remaining: 59, Reset: time.Second, Refills: true},
			{Name: "tokens", Limit: 150000, Remaining: 149984, Reset: 6 * time.Minute, Refills: true},
		}},
		{"Anthropic", []string{
			"anthropic-ratelimit-requests-limit", "50", "anthropic-ratelimit-requests-remaining", "49", "anthropic-ratelimit-requests-reset", "2026-11-29T12:00:01Z",
			"anthropic-ratelimit-input-tokens-limit", "40000", "anthropic-ratelimit-input-tokens-remaining", "39000", "anthropic-ratelimit-input-tokens-reset", "2026-11-29T12:00:02Z",
		}, []weirhttp.Quota{
			{Name: "requests", Limit: 50, Remaining: 49, Reset: time.Second, Refills: true},
			{Name: "input-tokens", Limit: 40000, Remaining: 39000, Reset: 2 * time.Second, Refills: true},
		}},
		{"Okta", []string{"x-rate-limit-limit", "600", "x-rate-limit-remaining", "599", "x-rate-limit-reset", strconv.FormatInt(at.Unix()+60, 10)}, []weirhttp.Quota{{Limit: 600, Remaining: 599, Reset: time.Minute}}},
		{"Discord", []string{"X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", fmt.Sprint(at.Unix()+9) + ".25", "X-RateLimit-Reset-After", "1.5"}, []weirhttp.Quota{{Limit: 5, Remaining: 0, Reset: 1500 * time.Millisecond}}},
		{"milliseconds since 1970", []string{"X-RateLimit-Remaining", "7", "X-RateLimit-Reset", fmt.Sprint(at.UnixMilli() + 2500)}, []weirhttp.Quota{{Remaining: 7, Reset: 2500 * time.Millisecond}}},
		{"a reset in the past", []string{"X-RateLimit-Remaining", "7", "X-RateLimit-Reset", "1372700873"}, []weirhttp.Quota{{Remaining: 7}}},
		{"nothing", nil, nil},
		{"nonsense", []string{"RateLimit", `"`, "RateLimit-Policy", `"x";q="`, "X-RateLimit-Limit", "many", "X-RateLimit-Remaining", "-3", "X-RateLimit-Reset", "NaN"}, nil},
		{"too large", []string{"X-RateLimit-Limit", "99999999999999999999", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1e300"}, []weirhttp.Quota{{Remaining: 1}}},
		{"only a limit", []string{"X-RateLimit-Limit", "40"}, []weirhttp.Quota{{Limit: 40, Remaining: -1}}},
	} {
		h := http.Header{"Date": {date}}
		for i := 0; i < len(test.fields); i += 2 {
			h.Add(test.fields[i], test.fields[i+1])
		}
		assert.Equal(t, test.want, weirhttp.QuotasOf(&http.Response{Header: h}), test.name)
	}
}

func FuzzQuotasOf(f *testing.F) {
	f.Add(`"a";q=1;w=2`, `"a";r=1`, "10", "1s")
	f.Fuzz(func(t *testing.T, policy, limit, legacy, reset string) {
		h := http.Header{"Ratelimit-Policy": {policy}, "Ratelimit": {limit}, "X-Ratelimit-Remaining": {legacy}, "X-Ratelimit-Reset": {reset}}
		for _, q := range weirhttp.QuotasOf(&http.Response{Header: h}) {
			if q.Limit < 0 || q.Remaining < -1 || q.Reset < 0 || q.Window < 0 {
				t.Fatal(q)
			}
		}
	})
}

// A hiddenLimit is a server with a limit that its clients do not know, and that others use, too.
type hiddenLimit struct {
	requests *limiter.FixedWindow
	say      bool // in fields
	took     time.Duration

	mu             sync.Mutex
	sent, refused  int
	served, others int
	start          time.Time
}

const hidden = 600 // requests a minute

func (s *hiddenLimit) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(s.took / 2)
	defer time.Sleep(s.took / 2)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	lease := weir.Must(s.requests.TryAcquire(context.Background(), 1))
	s.mu.Lock()
	s.sent++
	status := 200
	if lease.Acquired() {
		s.served++
	} else {
		s.refused++
		status = 429
	}
	s.mu.Unlock()
	reset := time.Minute - time.Since(s.start)%time.Minute
	fields := []string{"Retry-After", strconv.Itoa(int(reset.Seconds()) + 1)}
	if status == 200 {
		fields = nil
	}
	if s.say {
		fields = append(fields, "X-RateLimit-Limit", strconv.Itoa(hidden), "X-RateLimit-Remaining", strconv.FormatInt(s.requests.Statistics().AvailablePermits, 10),
			"X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(reset).Unix(), 10))
	}
	return answering(status, fields...), nil
}

// Clients that learn the hidden limit of a server are refused less than once in 200 requests, and use more than 95 % of what others
// leave.
func TestGate_Learns(t *testing.T) {
	retrying := func() pipeline.Strategy {
		return retry.New(&retry.Options{MaxRetries: 20, Delay: 200 * time.Millisecond, Backoff: retry.Exponential, MaxDelay: 30 * time.Second, Jitter: true})
	}
	for _, test := range []struct {
		name   string
		say    bool
		inside func() []pipeline.Strategy
	}{
		{"retry", true, func() []pipeline.Strategy { return nil }},
		{"a Gate that is told nothing", false, func() []pipeline.Strategy {
			return []pipeline.Strategy{weir.Must(weirhttp.NewGate(&weirhttp.GateOptions{QueueLimit: 1000}))}
		}},
		{"a Gate that learns", true, func() []pipeline.Strategy {
			return []pipeline.Strategy{weir.Must(weirhttp.NewGate(&weirhttp.GateOptions{QueueLimit: 1000}))}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &hiddenLimit{
					requests: weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: hidden, Window: time.Minute})),
					say:      test.say, took: 100 * time.Millisecond, start: time.Now(),
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
				defer cancel()
				var wg sync.WaitGroup
				wg.Go(func() { // others, who take a fifth
					for ctx.Err() == nil {
						time.Sleep(500 * time.Millisecond)
						if weir.Must(server.requests.TryAcquire(context.Background(), 1)).Acquired() {
							server.mu.Lock()
							server.others++
							server.mu.Unlock()
						}
					}
				})
				transport := roundTripper(t, server, nil, append([]pipeline.Strategy{retrying()}, test.inside()...)...)
				for range 20 {
					wg.Go(func() {
						for ctx.Err() == nil {
							resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, "").WithContext(ctx))
							if err != nil {
								time.Sleep(time.Second)
								continue
							}
							readAll(t, resp)
						}
					})
				}
				wg.Wait()
				refused := float64(server.refused) / float64(server.sent)
				used := float64(server.served) / float64(20*hidden-server.others)
				t.Logf("%s: refused %.2f %%, used %.1f %%", test.name, 100*refused, 100*used)
				if test.name == "a Gate that learns" {
					require.Less(t, refused, 0.005)
					require.Greater(t, used, 0.95)
				}
			})
		})
	}
}

// quoted returns a Transport with a gate whose server answers as a function says.
func quoted(t *testing.T, o *weirhttp.GateOptions, answer func(r *http.Request, n int) *http.Response) (*weirhttp.Transport, *fakeBase) {
	t.Helper()
	base := &fakeBase{answer: func(r *http.Request, n int) (*http.Response, error) { return answer(r, n), nil }}
	return roundTripper(t, base, nil, weir.Must(weirhttp.NewGate(o))), base
}

// Whatever a server says, an account is not held back for longer than MaxPause.
func TestGate_HostileQuotas(t *testing.T) {
	for _, fields := range [][]string{
		{"X-Ratelimit-Limit-Requests", "1", "X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "876000h"},
		{"X-Ratelimit-Limit-Requests", "999999999999999", "X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "1ns"},
		{"RateLimit-Policy", `"p";q=10;w=1`, "RateLimit", `"p";r=0;t=999999999`},
		{"RateLimit-Policy", `"p";q=0`, "RateLimit", `"p";r=0;t=1`},
		{"RateLimit-Policy", `"p";q=5`},
		{"X-RateLimit-Remaining", "0"},
		{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1e14"},
	} {
		synctest.Test(t, func(t *testing.T) {
			transport, _ := quoted(t, &weirhttp.GateOptions{QueueLimit: 10}, func(*http.Request, int) *http.Response { return answering(200, fields...) })
			start := time.Now()
			for range 20 {
				_, err := status(t, transport, newRequest(t, http.MethodGet, url, ""))
				require.NoError(t, err)
			}
			assert.LessOrEqual(t, time.Since(start), 20*time.Minute, "%v", fields)
		})
	}
}

// A bucket is used as it refills, and is full after a rest.
func TestGate_LearnsABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := weir.Must(limiter.NewTokenBucket(limiter.PerMinute(60, 10)))
		refused := 0
		transport, base := quoted(t, &weirhttp.GateOptions{QueueLimit: 100}, func(*http.Request, int) *http.Response {
			status := 200
			if !weir.Must(bucket.TryAcquire(context.Background(), 1)).Acquired() {
				status = 429
				refused++
			}
			left := bucket.Statistics().AvailablePermits
			return answering(status, "X-Ratelimit-Limit-Requests", "10", "X-Ratelimit-Remaining-Requests", strconv.FormatInt(left, 10),
				"X-Ratelimit-Reset-Requests", (time.Duration(10-left) * time.Second).String())
		})
		send := func() {
			_, err := status(t, transport, newRequest(t, http.MethodGet, url, ""))
			require.NoError(t, err)
		}
		start := time.Now()
		for range 70 {
			send()
		}
		assert.InDelta(t, 60, time.Since(start).Seconds(), 4)
		assert.LessOrEqual(t, refused, 2)
		time.Sleep(time.Hour)
		start = time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(send)
		}
		wg.Wait()
		assert.LessOrEqual(t, time.Since(start), time.Second, "what is under way can be counted twice")
		assert.Equal(t, 80, base.count())
	})
}

// A quota holds back the requests to which it applies, and no others: of GitHub, searches.
func TestGate_Resources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, base := quoted(t, &weirhttp.GateOptions{QueueLimit: 100}, func(r *http.Request, n int) *http.Response {
			resource, left := "core", "4000"
			if r.URL.Path == "/search/code" {
				resource, left = "search", "0"
			}
			return answering(200, "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", left, "X-RateLimit-Resource", resource,
				"X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(30*time.Second).Unix(), 10))
		})
		send := func(path, credential string) time.Duration {
			start := time.Now()
			r := newRequest(t, http.MethodGet, "http://api.example.com"+path, "")
			r.Header.Set("Authorization", credential)
			_, err := status(t, transport, r)
			require.NoError(t, err)
			return time.Since(start)
		}
		assert.Zero(t, send("/search/code", "a"))
		var wg sync.WaitGroup
		wg.Go(func() { assert.Equal(t, 30*time.Second, send("/search/code", "a")) })
		synctest.Wait()
		assert.Zero(t, send("/repos/x", "a"), "another resource")
		assert.Zero(t, send("/repos/y", "a"))
		assert.Zero(t, send("/search/code", "b"), "another account")
		wg.Wait()
		assert.Equal(t, 5, base.count())
	})
}

// A refusal pauses, however it is said: GitHub's 403, and a 429 without a word.
func TestGate_Refusals(t *testing.T) {
	for _, test := range []struct {
		status int
		fields []string
		want   time.Duration
	}{
		{403, []string{"Retry-After", "7"}, 7 * time.Second},
		{403, []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "9"}, 9 * time.Second},
		{403, nil, 0},
		{403, []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "14", "X-RateLimit-Reset-After", "9"}, 0},
		{429, nil, time.Second},
		{429, []string{"X-RateLimit-Remaining", "14463", "Retry-After", "60"}, time.Minute},
		{503, nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			transport, _ := quoted(t, &weirhttp.GateOptions{QueueLimit: 100}, func(_ *http.Request, n int) *http.Response {
				if n > 0 {
					return answering(200)
				}
				return answering(test.status, test.fields...)
			})
			_, err := status(t, transport, newRequest(t, http.MethodGet, url, ""))
			require.NoError(t, err)
			start := time.Now()
			_, err = status(t, transport, newRequest(t, http.MethodGet, url, ""))
			require.NoError(t, err)
			assert.Equal(t, test.want, time.Since(start), "%d %v", test.status, test.fields)
		})
	}
}
