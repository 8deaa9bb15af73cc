package testserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A PrometheusServer is a Prometheus for tests.
type PrometheusServer struct{ *Server }

// Prometheus starts a Prometheus, stopped at the test's end. config is its configuration in YAML; paths of rule files in
// it must be absolute.
func Prometheus(t testing.TB, config string) *PrometheusServer {
	t.Helper()
	prometheus := needed(t, "WEIR_PROMETHEUS", "apt-get install prometheus, brew install prometheus", "prometheus")
	return &PrometheusServer{webserver(t, recipe{
		name:    "prometheus",
		says:    "server is ready to receive web requests",
		answers: func(addr string) error { return getOK("http://" + addr + "/-/ready") },
		command: func(data string, port int) (*exec.Cmd, error) {
			file := filepath.Join(data, "prometheus.yml")
			cmd := exec.Command(prometheus,
				"--config.file", file,
				"--storage.tsdb.path", filepath.Join(data, "tsdb"),
				"--web.listen-address", hostPort(port),
			)
			return cmd, os.WriteFile(file, []byte(strings.ReplaceAll(config, address, hostPort(port))), 0o600)
		},
	})}
}

// Promtool returns the path of promtool, which checks configurations and runs the tests of rules.
func Promtool(t testing.TB) string {
	t.Helper()
	return needed(t, "WEIR_PROMTOOL", "apt-get install prometheus, brew install prometheus", "promtool")
}

// A Sample is one element of the result of a query.
type Sample struct {
	Labels map[string]string // with __name__ if the query keeps it; empty for a scalar
	Value  float64           // may be NaN or infinite, as in Prometheus
}

// Query evaluates a PromQL expression at this moment. The result is empty if there is no data.
func (p *PrometheusServer) Query(ctx context.Context, expr string) ([]Sample, error) {
	return p.query(ctx, expr, url.Values{})
}

// QueryAt is Query for another moment.
func (p *PrometheusServer) QueryAt(ctx context.Context, expr string, at time.Time) ([]Sample, error) {
	return p.query(ctx, expr, url.Values{"time": {at.UTC().Format(time.RFC3339Nano)}})
}

func (p *PrometheusServer) query(ctx context.Context, expr string, parameters url.Values) ([]Sample, error) {
	parameters.Set("query", expr)
	body, err := get(ctx, p.URL+"/api/v1/query?"+parameters.Encode())
	if err != nil {
		return nil, fmt.Errorf("testserver: query %s: %w", expr, err)
	}
	samples, err := decodeSamples(body)
	if err != nil {
		return nil, fmt.Errorf("testserver: query %s: %w", expr, err)
	}
	return samples, nil
}

// decodeSamples reads an answer of Prometheus to an instant query.
func decodeSamples(body []byte) ([]Sample, error) {
	var answer struct {
		Data struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	type series struct {
		Metric map[string]string
		Value  point
	}
	var found []series
	switch answer.Data.ResultType {
	case "vector":
		if err := json.Unmarshal(answer.Data.Result, &found); err != nil {
			return nil, err
		}
	case "scalar":
		found = make([]series, 1)
		if err := json.Unmarshal(answer.Data.Result, &found[0].Value); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("the result is a %s, want a vector or a scalar", answer.Data.ResultType)
	}
	samples := make([]Sample, len(found))
	for i, s := range found {
		samples[i] = Sample{Labels: s.Metric, Value: float64(s.Value)}
	}
	return samples, nil
}

// A point is [time, "value"] in JSON, of which the value is kept.
type point float64

func (p *point) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &[]any{new(float64), &text}); err != nil {
		return err
	}
	value, err := strconv.ParseFloat(text, 64)
	*p = point(value)
	return err
}
