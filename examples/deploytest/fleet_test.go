package deploytest

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir/tools/testserver"
)

// patience is how long something may take that is expected to happen.
const patience = time.Minute

// scrapeInterval is that of the tests, in place of the one in deploy/. rateInterval is $__rate_interval.
const (
	scrapeInterval = time.Second
	rateInterval   = 5 * scrapeInterval
)

// A fleet is the processes that Prometheus scrapes, by job.
type fleet struct {
	prometheus *testserver.PrometheusServer
	targets    map[string][]string // host:port that Prometheus scrapes
	gateways   []string            // host:port that the gateways serve
	client     *http.Client
	loaded     time.Time // after the last scrape of the load
}

// dead is an address at which nothing listens.
const dead = "127.0.0.1:1"

func startFleet(t *testing.T) *fleet {
	t.Helper()
	postgres := testserver.NewPostgres(t, "fsync=off") // a busy disk would be an outage
	partner := program(t, "partner")
	f := &fleet{targets: map[string][]string{}, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(f.client.CloseIdleConnections)
	for _, name := range []string{"partner-1", "partner-2"} {
		s := testserver.StartProgram(t, "{{addr}}\n", partner, "serve", "-name", name, "-listen", "{{addr}}", "-postgres", postgres.URL)
		f.targets["partner"] = append(f.targets["partner"], s.Addr())
	}
	f.startGateways(t, program(t, "weir"), postgres.URL)
	self, err := os.Executable()
	require.NoError(t, err)
	f.targets[troubled] = []string{testserver.StartProgram(t, "listening", self, troubled, "{{addr}}").Addr()}
	f.prometheus = testserver.Prometheus(t, f.prometheusConfig(t))
	return f
}

// startGateways starts two gateways with deploy's file, which names the fleet's instances and PostgreSQL instead.
func (f *fleet) startGateways(t *testing.T, weir, postgres string) {
	t.Helper()
	config := string(read(t, deploy+"/gateway/gateway.yaml"))
	for i, address := range f.targets["partner"] {
		config = replaceOnce(t, config, fmt.Sprintf("partner-%d:8080", i+1), address)
	}
	config = replaceOnce(t, config, "postgres://postgres:weir@postgres:5432/postgres?sslmode=disable", postgres)
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	for range 2 {
		listen, err := testserver.FreeAddress()
		require.NoError(t, err)
		s := testserver.StartProgram(t, "the gateway is ready", weir, "gateway", "-config", file, "-listen", listen, "-admin", "{{addr}}")
		// What the image has as its health check.
		out, err := exec.CommandContext(t.Context(), weir, "ready", s.Addr()).CombinedOutput()
		require.NoError(t, err, "%s", out)
		f.targets["gateway"] = append(f.targets["gateway"], s.Addr())
		f.gateways = append(f.gateways, listen)
	}
}

func replaceOnce(t *testing.T, text, before, after string) string {
	t.Helper()
	require.Equal(t, 1, strings.Count(text, before), before)
	return strings.Replace(text, before, after, 1)
}

// prometheusConfig is deploy's, with the addresses of the fleet, and faster.
func (f *fleet) prometheusConfig(t *testing.T) string {
	t.Helper()
	config := decodeYAML[map[string]any](t, deploy+"/prometheus/prometheus.yml")
	config["global"] = map[string]any{"scrape_interval": scrapeInterval.String(), "evaluation_interval": "1s"}
	for i, file := range config["rule_files"].([]any) {
		path, err := filepath.Abs(filepath.Join(deploy, "prometheus", file.(string)))
		require.NoError(t, err)
		config["rule_files"].([]any)[i] = path
	}
	missing := maps.Clone(f.targets)
	for _, s := range config["scrape_configs"].([]any) {
		scrape := s.(map[string]any)
		job := scrape["job_name"].(string)
		targets := f.targets[job]
		delete(missing, job)
		if job == "partner" {
			targets = append(slices.Clone(targets), dead)
		}
		scrape["static_configs"] = []any{map[string]any{"targets": targets}}
	}
	require.Equal(t, []string{troubled}, slices.Collect(maps.Keys(missing)), "jobs that deploy's Prometheus does not scrape")
	config["scrape_configs"] = append(config["scrape_configs"].([]any), map[string]any{
		"job_name": troubled, "static_configs": []any{map[string]any{"targets": f.targets[troubled]}},
	})
	text, err := yaml.Marshal(config)
	require.NoError(t, err)
	return string(text)
}

// scraped waits until Prometheus has scraped every process once more.
func (f *fleet) scraped(t *testing.T) {
	t.Helper()
	began := float64(time.Now().UnixMilli()) / 1000
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		scrapes, err := f.prometheus.Query(t.Context(), "timestamp(up)")
		require.NoError(c, err)
		up, err := f.prometheus.Query(t.Context(), "up")
		require.NoError(c, err)
		later, answered := byInstance(scrapes), byInstance(up)
		for _, targets := range f.targets {
			for _, instance := range targets {
				require.Greater(c, later[instance], began, instance)
				require.Equal(c, 1.0, answered[instance], instance)
			}
		}
	}, patience, 20*time.Millisecond)
}

func byInstance(samples []testserver.Sample) map[string]float64 {
	values := map[string]float64{}
	for _, s := range samples {
		values[s.Labels["instance"]] = s.Value
	}
	return values
}

// sent is what a load was answered with.
type sent struct {
	posts, gets, rejected          float64 // by the instances of partner
	gatewayPassed, gatewayRejected float64
	longest                        time.Duration // a request has taken
}

// batches is how often the load is sent, with a scrape after each. They last for longer than rateInterval.
const batches = 7

// load sends the same requests again and again, so that all counters grow alike, and the quotient of two rates is the
// quotient of the two counters. A user asks twice without a pause, and is granted the first request.
func (f *fleet) load(t *testing.T) (s sent) {
	t.Helper()
	for batch := range batches {
		for _, address := range f.targets["partner"] {
			for i := range 6 {
				user := fmt.Sprintf("user-%d-%s-%d", batch, address, i)
				if i%2 == 0 {
					body := fmt.Sprintf(`{"user": %q, "name": "an item"}`, user)
					require.Equal(t, http.StatusCreated, f.send(t, &s, http.MethodPost, "http://"+address+"/items/create", body))
					s.posts++
				}
				for range 2 {
					switch status := f.send(t, &s, http.MethodGet, "http://"+address+"/items/"+user, ""); status {
					case http.StatusOK:
						s.gets++
					case http.StatusTooManyRequests:
						s.rejected++
					default:
						t.Fatalf("GET /items/%s: status %d", user, status)
					}
				}
			}
		}
		f.loadGateways(t, batch, &s)
		f.scraped(t)
	}
	f.loaded = time.Now()
	require.Equal(t, float64(batches*2*3), s.posts)
	require.GreaterOrEqual(t, s.gets, float64(batches*2*6), "the first request of each user")
	require.NotZero(t, s.rejected)
	require.NotZero(t, s.gatewayPassed)
	require.NotZero(t, s.gatewayRejected)
	return s
}

// loadGateways sends more requests than one client may make: what is left of the burst of 20 passes, for both gateways together. Each
// is for another user, whom partner has not seen.
func (f *fleet) loadGateways(t *testing.T, batch int, s *sent) {
	t.Helper()
	for i := range 30 {
		url := fmt.Sprintf("http://%s/items/client-%d-%d", f.gateways[i%len(f.gateways)], batch, i)
		switch status := f.send(t, s, http.MethodGet, url, ""); status {
		case http.StatusOK:
			s.gets++
			s.gatewayPassed++
		case http.StatusTooManyRequests:
			s.gatewayRejected++
		default:
			t.Fatalf("GET %s: status %d", url, status)
		}
	}
}

func (f *fleet) send(t *testing.T, s *sent, method, url, body string) (status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	began := time.Now()
	resp, err := f.client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	s.longest = max(s.longest, time.Since(began))
	return resp.StatusCode
}
