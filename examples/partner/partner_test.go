package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/testserver"
)

// runCommand runs the program in this process.
func runCommand(t *testing.T, arguments ...string) (out string, status int) {
	t.Helper()
	var text, errs bytes.Buffer
	status = command(t.Context(), arguments, &text, &errs)
	return text.String() + errs.String(), status
}

func assertHas(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, want := range all {
		assert.Contains(t, text, want)
	}
}

// The demo in four and a half seconds, with two processes on a real PostgreSQL.
func TestDemo(t *testing.T) {
	url := testserver.Postgres(t).URL
	t.Setenv(postgresURL, url)
	out, status := runCommand(t, "-for", "4500ms")
	if status != 0 {
		t.Fatalf("status %d\n%s", status, out)
	}
	assertHas(t, out, "Two instances share one limit", "The limiter is weir:", "Each gets 224 GET", " of 448 requests had no decision",
		" successes, and ", "The limit held.", "PostgreSQL wrote ")
	err := inPostgres(t.Context(), url, func(ctx context.Context, c *pgx.Conn) error {
		var left int
		err := c.QueryRow(ctx, `select count(*) from pg_namespace where nspname like 'partner\_%'`).Scan(&left)
		if left > 0 {
			t.Errorf("%d schemas are left", left)
		}
		return err
	})
	assert.NoError(t, err)
}

func TestCommand_CannotRun(t *testing.T) {
	t.Setenv(postgresURL, "postgres://user:secret@127.0.0.1:1/none")
	out, status := runCommand(t)
	assert.Equal(t, 2, status)
	assert.NotContains(t, out, "secret")
	t.Setenv(postgresURL, "")
	for _, c := range []struct{ arguments, want string }{
		{"-variant fast", "must be one of weir, nowait, exclusion, upsert"},
		{"load -targets http://127.0.0.1:1 -for 2h", "-for 2h0m0s, which is not from 1ms to 1h0m0s"},
		{"run", `"run" is no command`},
		{"serve", postgresURL + " must be the URL"},
		{"serve extra", `unexpected arguments ["extra"]`},
		{"load -targets 127.0.0.1:1", "POST 127.0.0.1:1/items/create"},
	} {
		out, status := runCommand(t, strings.Fields(c.arguments)...)
		assertHas(t, out, c.want)
		assert.Equal(t, 2, status, c.arguments)
	}
}

// startInstance serves in this process until the test ends, or end is called, in a schema of the test's own.
func startInstance(t *testing.T, variantName string, log io.Writer) (url, schema string, end func()) {
	t.Helper()
	var v variant
	require.NoError(t, v.UnmarshalText([]byte(variantName)))
	schema = strings.ToLower(strings.ReplaceAll(t.Name(), "/", "_"))
	o := serveOptions{
		listen: "127.0.0.1:0", postgres: testserver.Postgres(t).URL, schema: schema, name: "one", variant: v,
		logger: slog.New(slog.NewJSONHandler(log, nil)),
	}
	ctx, cancel := context.WithCancel(context.Background())
	listening, served := make(chan net.Addr, 1), make(chan error, 1)
	go func() { served <- serve(ctx, o, func(a net.Addr) { listening <- a }) }()
	end = sync.OnceFunc(func() {
		cancel()
		err := <-served
		e := inPostgres(ctx, o.postgres, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "drop schema if exists "+schema+" cascade")
			return err
		})
		assert.NoError(t, errors.Join(err, e))
	})
	t.Cleanup(end)
	select {
	case a := <-listening:
		return "http://" + a.String(), schema, end
	case err := <-served:
		served <- err
		t.FailNow()
		return "", "", nil
	}
}

func send(t *testing.T, method, url, body string) (status int, header http.Header, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, resp.Header, string(read)
}

// sendUntil sends a request until it has the status: on a busy machine, a call of the limiter can take longer than the store waits,
// and the next permit comes in real time; and two requests can be further apart than the interval.
func sendUntil(t *testing.T, want int, method, url, body string) (status int, header http.Header, text string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if status, header, text = send(t, method, url, body); status == want {
			break
		}
	}
	return status, header, text
}

// An instance answers, has the numbers of the requests as metrics, exports their traces to the collector that the environment
// names, and logs lines that lead to them.
func TestInstance(t *testing.T) {
	exported := make(chan string, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		exported <- r.URL.Path + " " + string(body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	var log bytes.Buffer
	url, _, end := startInstance(t, "weir", &log)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/items/create", `{"user": "ann", "name": "a"}`, 201, `{"user":"ann","items":["a"],"now":"`},
		{"POST", "/items/create", `{"user": "ann", "name": "b"}`, 201, `{"user":"ann","items":["b"],"now":"`},
		{"GET", "/items/ann", "", 200, `{"user":"ann","items":["b","a"],"now":"`},
		{"GET", "/items/ann", "", 429, "Too Many Requests"},
		{"GET", "/items/bob", "", 200, `{"user":"bob","items":[],"now":"`},
		{"POST", "/items/create", `{"user": "ann"}`, 400, "the body must be"},
		{"GET", "/items/", "", 404, ""},
		{"DELETE", "/items/ann", "", 405, ""},
		{"GET", "/healthz", "", 200, ""},
	} {
		status, header, body := sendUntil(t, c.status, c.method, url+c.path, c.body)
		assert.Equal(t, c.status, status, "%s %s: %s", c.method, c.path, body)
		assert.True(t, strings.HasPrefix(body, c.want), body)
		if status == http.StatusTooManyRequests {
			assert.Equal(t, "2", header.Get("Retry-After"))
		}
	}
	_, _, metrics := send(t, "GET", url+"/metrics", "")
	assertHas(t, metrics,
		`weir_rate_limiter_requests_total{pipeline_name="http",result="acquired",strategy_name="per-user"} `,
		`weir_rate_limiter_requests_total{pipeline_name="http",result="rejected",strategy_name="per-user"} `,
		`weir_store_decisions_total{decided_by="store",store_name="postgres"} `,
		`http_server_request_duration_seconds_count{http_request_method="GET",http_response_status_code="429",http_route="/items/{user}",url_scheme="http"} `,
		`target_info{service_instance_id="one",service_name="partner"} 1`)
	end()
	traces := <-exported
	assert.True(t, strings.HasPrefix(traces, "/v1/traces "))
	assert.Contains(t, traces, getRoute)
	logged := map[float64]bool{}
	for line := range strings.Lines(log.String()) {
		var l map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		assert.Equal(t, "one", l["instance"])
		assert.Len(t, l["trace_id"], 32, line)
		if l["msg"] == "request" {
			logged[l["status"].(float64)] = true
		}
	}
	assert.Subset(t, logged, map[float64]bool{200: true, 201: true, 429: true})
	assert.Contains(t, log.String(), "OnRateLimiterRejected")
}

// Every variant grants requests of each user, and rejects others.
func TestVariants(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			url, _, _ := startInstance(t, v.name, io.Discard)
			for _, user := range []string{"ann", "bob"} {
				for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
					got, _, body := sendUntil(t, want, "GET", url+"/items/"+user, "")
					assert.Equal(t, want, got, body)
				}
			}
		})
	}
}

// What goes wrong with two of the variants: a locked row makes every call of nowait fail; and inserts that wait for the same row
// wait for each other when it goes away, until PostgreSQL ends the deadlock.
func TestVariants_Fail(t *testing.T) {
	for name, c := range map[string]struct {
		hold string
		wait int // until so many calls wait for a lock, the transaction is held; 0: to the end of the load
		want []string
	}{
		"nowait": {"select from %s.last_request for update", 0, []string{" × 55P03: another request holds", "15 of 15 requests had no decision"}},
		"exclusion": {"insert into %s.reserved values ('user-1', tstzrange(now(), now() + '1 hour'))", 3,
			[]string{" × 40P01: a deadlock", "had no decision"}},
	} {
		t.Run(name, func(t *testing.T) {
			url, schema, _ := startInstance(t, name, io.Discard)
			if name == "nowait" {
				send(t, "GET", url+"/items/user-1", "")
			}
			c2, err := pgx.Connect(t.Context(), testserver.Postgres(t).URL)
			require.NoError(t, err)
			_, err = c2.Exec(t.Context(), "begin; "+fmt.Sprintf(c.hold, schema))
			require.NoError(t, err)
			var holding sync.WaitGroup
			holding.Go(func() {
				if c.wait > 0 {
					awaitLocks(t, c.wait)
					_ = c2.Close(context.Background())
				}
			})
			out, status := runCommand(t, "load", "-targets", url, "-for", "300ms")
			holding.Wait()
			_ = c2.Close(context.Background())
			assertHas(t, out, c.want...)
			assert.Zero(t, status)
		})
	}
}

// awaitLocks waits until n inserts wait for a lock.
func awaitLocks(t *testing.T, n int) {
	err := inPostgres(t.Context(), testserver.Postgres(t).URL, func(ctx context.Context, c *pgx.Conn) error {
		for waiting := 0; waiting < n; {
			err := c.QueryRow(ctx, "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like 'insert into reserved%'").Scan(&waiting)
			if err != nil {
				return err
			}
		}
		return nil
	})
	assert.NoError(t, err)
}

// A fakeService answers as two instances that share a limit, without a network: with fake time.
type fakeService struct {
	latency time.Duration
	answer  func(at time.Duration) (status int, failure string) // to a GET, at a time since the start

	mu    sync.Mutex
	start time.Time
}

func (f *fakeService) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	now, w := time.Now(), httptest.NewRecorder()
	if f.start.IsZero() {
		f.start = now
	}
	status := http.StatusCreated
	if r.Method == http.MethodGet {
		var failure string
		status, failure = f.answer(now.Sub(f.start))
		w.Header().Set(limiterError, failure)
	}
	f.mu.Unlock()
	select {
	case <-time.After(f.latency):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer{User: user, Now: now})
	return w.Result(), nil
}

// oneEach grants the first request in each interval.
func oneEach(interval time.Duration) func(time.Duration) (int, string) {
	next := time.Duration(0)
	return func(at time.Duration) (int, string) {
		if at < next {
			return http.StatusTooManyRequests, ""
		}
		next = at + interval
		return http.StatusOK, ""
	}
}

func TestLoad(t *testing.T) {
	windows := map[time.Duration]bool{}
	for name, c := range map[string]struct {
		service   *fakeService
		interrupt time.Duration
		err       error
		want      []string
	}{
		"the limit holds": {
			service: &fakeService{latency: 3 * time.Millisecond, answer: oneEach(interval)},
			want: []string{"GET granted          3        3ms", "GET rejected       595        3ms", "POST granted        12",
				"sent late by       610         0s         0s         0s",
				"3 successes, and 3 are allowed", "0 of 598 requests had no decision", "The limit held."},
		},
		"the service stands still, and the load goes on": {
			service: &fakeService{latency: 4 * time.Second, answer: func(time.Duration) (int, string) { return 503, "40P01" }},
			want: []string{"598 × 40P01: a deadlock", "598 of 598 requests had no decision", "The limit held.",
				"sent late by       610         0s         0s         0s"},
		},
		"an interrupted load is judged by what was answered": {
			service: &fakeService{latency: 150 * time.Millisecond, answer: oneEach(interval)}, interrupt: 2900 * time.Millisecond,
			err: context.Canceled, want: []string{"2 successes, and 2 are allowed", " 0 of "},
		},
		"all succeed":          {service: &fakeService{answer: func(time.Duration) (int, string) { return 200, "" }}, err: errTooMany},
		"a refill is too fast": {service: &fakeService{answer: oneEach(interval - 50*time.Millisecond)}, err: errTooMany},
		"a fixed window": {err: errTooMany, service: &fakeService{answer: func(at time.Duration) (int, string) {
			if w := (at + 1500*time.Millisecond) / interval; !windows[w] {
				windows[w] = true
				return http.StatusOK, ""
			}
			return http.StatusTooManyRequests, ""
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.interrupt > 0 {
					defer time.AfterFunc(c.interrupt, cancel).Stop()
				}
				var out bytes.Buffer
				l := &load{
					targets: []target{{"one", "http://one"}, {"two", "http://two"}}, length: 6 * time.Second,
					client: &http.Client{Transport: c.service}, out: &out,
				}
				require.ErrorIs(t, l.measure(ctx), c.err, out.String())
				assertHas(t, out.String(), c.want...)
			})
		})
	}
}

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
		assert.InDelta(t, want, n, 1, "in second %d", second)
	}
}

// grant is a successful request that was sent, ran, and was answered at these times.
func grant(sent, ran, answered time.Duration) sample {
	return sample{sent: sent, now: time.Unix(0, 0).Add(ran), answered: answered}
}

func TestJudge(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		grants []sample
		want   verdict
	}{
		"none": {nil, verdict{allowed: 1}},
		"a tick early, which the bucket can be": {
			[]sample{grant(0, 0, 0), grant(2*s, 2*s-tick, 2*s-tick)}, verdict{granted: 2, allowed: 2},
		},
		"earlier": {[]sample{grant(0, 0, 0), grant(s, 2*s-2*tick, 2*s-tick)}, verdict{granted: 2, allowed: 1, excess: 1}},
		// The first is granted in time but its answer is late, so it proves nothing.
		"close runs": {[]sample{grant(0, 2*s-s/2, 2*s), grant(2*s, 2*s, 2*s+s/2)}, verdict{granted: 2, allowed: 2}},
		"close, but not more than the limit from the start": {
			[]sample{grant(4*s, 4*s, 4*s), grant(5*s, 5*s, 5*s)}, verdict{granted: 2, allowed: 3, tooClose: 1},
		},
		"too many at first, by answers that are late, and then none": {
			[]sample{grant(0, s/10, 3*s), grant(0, s/5, 3*s), grant(0, 9*s, 9*s)}, verdict{granted: 3, allowed: 5, excess: 1},
		},
	} {
		others := []sample{{rejected: true}, {post: true}, {failure: "55P03"}}
		assert.Equal(t, c.want, judge(append(others, c.grants...), time.Unix(0, 0)), name)
	}
}
