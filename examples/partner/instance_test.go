package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/tools/testserver"
)

// startInstance serves in this process until the test ends, or end is called. The schema is the test's own.
func startInstance(t *testing.T, o serveOptions) (url string, end func()) {
	t.Helper()
	if o.schema == "" {
		o.schema = strings.ToLower(t.Name())
	}
	o.postgres = testserver.Postgres(t).URL
	o.listen, o.name = "127.0.0.1:0", "one"
	if o.logger == nil {
		o.logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	listening, served := make(chan net.Addr, 1), make(chan error, 1)
	go func() { served <- serve(ctx, o, func(a net.Addr) { listening <- a }) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		drop := func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, inSchema("drop schema SCHEMA cascade", o.schema))
			return err
		}
		if err := withConnection(context.Background(), o.postgres, drop); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	select {
	case a := <-listening:
		return "http://" + a.String(), end
	case err := <-served:
		served <- nil
		t.Fatal(err)
		return "", nil
	}
}

func must(t *testing.T, name string) variant {
	t.Helper()
	v, err := variantByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A reply is the answer to a request.
type reply struct {
	status int
	header http.Header
	body   string
}

func send(t *testing.T, method, url, body string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

func TestInstance(t *testing.T) {
	url, _ := startInstance(t, serveOptions{variant: must(t, "weir")})
	for i, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/items/create", `{"user": "ann", "name": "a"}`, 201, `{"user":"ann","items":["a"],"now":"`},
		{"POST", "/items/create", `{"user": "ann", "name": "b"}`, 201, `{"user":"ann","items":["b"],"now":"`},
		{"GET", "/items/ann", "", 200, `{"user":"ann","items":["b","a"],"now":"`},
		{"GET", "/items/ann", "", 429, "Too Many Requests"},
		{"GET", "/items/bob", "", 200, `{"user":"bob","items":[],"now":"`},
		{"GET", "/items/" + strings.Repeat("x", maxName+1), "", 400, "the user must be"},
		{"GET", "/items/%00", "", 400, "the user must be"},
		{"GET", "/items/%ff", "", 400, "the user must be"},
		{"GET", "/items/", "", 404, ""},
		{"POST", "/items/create", `{"user": "ann", "name": "a\u0000"}`, 400, "user and name must be"},
		{"POST", "/items/create", `{"user": "ann"}`, 400, "user and name must be"},
		{"POST", "/items/create", "items", 400, "the body must be"},
		{"POST", "/items/create", `"` + strings.Repeat("x", maxBody) + `"`, 400, "the body must be"},
		{"DELETE", "/items/ann", "", 405, ""},
		{"GET", "/healthz", "", 200, ""},
	} {
		got := send(t, c.method, url+c.path, c.body)
		if got.status != c.status || !strings.HasPrefix(got.body, c.want) {
			t.Errorf("%d: %s %s: %d %s", i, c.method, c.path, got.status, got.body)
		}
		took, asked := limiterTime(got.header)
		if wants := c.method == "GET" && (c.status == 200 && c.want != "" || c.status == 429); asked != wants || asked && took <= 0 {
			t.Errorf("%d: %s %s: the limiter took %v, %v", i, c.method, c.path, took, asked)
		}
		if c.status == 429 && got.header.Get("Retry-After") != "2" {
			t.Errorf("Retry-After is %q", got.header.Get("Retry-After"))
		}
	}
}

// Every variant grants the first request of a user, and not the next.
func TestVariants(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			url, _ := startInstance(t, serveOptions{variant: v, schema: "testvariants_" + v.name})
			for _, user := range []string{"ann", "bob"} {
				for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
					if got := send(t, "GET", url+"/items/"+user, ""); got.status != want {
						t.Errorf("%s: %+v, want %d", user, got, want)
					}
				}
			}
		})
	}
}

// A locked row makes every call of nowait fail, and the table and the verdict say so.
func TestVariants_NowaitFails(t *testing.T) {
	url, _ := startInstance(t, serveOptions{variant: must(t, "nowait")})
	if got := send(t, "GET", url+"/items/user-1", ""); got.status != http.StatusOK {
		t.Fatal(got)
	}
	end := holdTransaction(t, "select from testvariants_nowaitfails.last_request for update")
	defer end()
	out, status := runCommand(t, "load", "-targets", url, "-for", "300ms")
	if status != limitHeld {
		t.Errorf("status %d", status)
	}
	out += send(t, "GET", url+"/metrics", "").body
	for _, want := range []string{
		`weir_rate_limiter_requests_total{pipeline_name="http",result="failed",strategy_name="per-user"} 15`,
		"one: the first 55P03: another request holds", "15 × 55P03: ", "15 of 15 requests had no decision",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// Two inserts wait for a third one. When that is rolled back, each finds the other's row and waits for it: a deadlock,
// which PostgreSQL ends after a second.
func TestVariants_ExclusionDeadlocks(t *testing.T) {
	url, _ := startInstance(t, serveOptions{variant: must(t, "exclusion")})
	end := holdTransaction(t, "insert into testvariants_exclusiondeadlocks.reserved values ('user-1', tstzrange(now(), now() + '1 hour'))")
	done := make(chan struct{})
	go func() {
		defer close(done)
		awaitLocks(t, "testvariants_exclusiondeadlocks", 3)
		end()
	}()
	out, status := runCommand(t, "load", "-targets", url, "-for", "100ms")
	<-done
	if status != limitHeld {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{"one: the first 40P01: a deadlock", " × 40P01: ", "a request waited", "had no decision"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// holdTransaction runs a statement in a transaction that is rolled back by end.
func holdTransaction(t *testing.T, sql string) (end func()) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), testserver.Postgres(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec(t.Context(), "begin; "+sql); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// awaitLocks waits until n statements on the schema wait for a lock.
func awaitLocks(t *testing.T, schema string, n int) {
	err := withConnection(t.Context(), testserver.Postgres(t).URL, func(ctx context.Context, c *pgx.Conn) error {
		for waiting := 0; waiting < n; {
			err := c.QueryRow(ctx, "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like $1", "%"+schema+"%").Scan(&waiting)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The metrics have the numbers of the requests.
func TestInstance_Metrics(t *testing.T) {
	url, _ := startInstance(t, serveOptions{variant: must(t, "weir")})
	for range 20 {
		send(t, "GET", url+"/items/ann", "")
	}
	for range 3 {
		send(t, "POST", url+"/items/create", `{"user": "ann", "name": "a"}`)
	}
	metrics := send(t, "GET", url+"/metrics", "").body
	for _, want := range []string{
		`weir_rate_limiter_requests_total{pipeline_name="http",result="acquired",strategy_name="per-user"} 1`,
		`weir_rate_limiter_requests_total{pipeline_name="http",result="rejected",strategy_name="per-user"} 19`,
		`weir_store_decisions_total{decided_by="store",store_name="postgres"} 20`,
		`http_server_request_duration_seconds_count{http_request_method="GET",http_response_status_code="200",http_route="/items/{user}",url_scheme="http"} 1`,
		`http_server_request_duration_seconds_count{http_request_method="GET",http_response_status_code="429",http_route="/items/{user}",url_scheme="http"} 19`,
		`http_server_request_duration_seconds_count{http_request_method="POST",http_response_status_code="201",http_route="/items/create",url_scheme="http"} 3`,
		`target_info{service_instance_id="one",service_name="partner"} 1`,
		// The maxima of the last minute.
		`weir_http_server_request_max_duration_seconds{http_request_method="GET",http_response_status_code="429",http_route="/items/{user}",url_scheme="http"} 0.`,
		`weir_rate_limiter_queue_max_duration_seconds{pipeline_name="http",result="acquired",strategy_name="per-user"} 0.`,
	} {
		if !strings.HasSuffix(want, ".") {
			want += "\n"
		}
		if !strings.Contains(metrics, want) {
			t.Errorf("%s is not in\n%s", want, metrics)
		}
	}
}

// A request leaves a trace at the collector that the environment names, and lines in the log that lead to it.
func TestInstance_TracesAndLogs(t *testing.T) {
	exported := make(chan string, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		exported <- r.URL.Path + " " + string(body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	var log bytes.Buffer
	url, end := startInstance(t, serveOptions{variant: must(t, "weir"), logger: slog.New(slog.NewJSONHandler(&log, nil))})
	for range 2 {
		send(t, "GET", url+"/items/ann", "")
	}
	end()
	traces := <-exported
	if !strings.HasPrefix(traces, "/v1/traces ") || !strings.Contains(traces, getRoute) {
		t.Errorf("%q", traces)
	}
	statuses := []float64{}
	for line := range strings.Lines(log.String()) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l["instance"] != "one" || len(fmt.Sprint(l["trace_id"])) != 32 {
			t.Error(line)
		}
		if l["msg"] == "request" {
			statuses = append(statuses, l["status"].(float64))
		}
	}
	if fmt.Sprint(statuses) != "[200 429]" || !strings.Contains(log.String(), "OnRateLimiterRejected") {
		t.Error(log.String())
	}
}
