package testserver

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// upstream answers every request with its path.
func upstream(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("upstream " + r.URL.Path))
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func body(t *testing.T, url string) string {
	t.Helper()
	b, err := get(t.Context(), url)
	require.NoError(t, err)
	return string(b)
}

func TestNginx(t *testing.T) {
	s := Nginx(t, `server { listen {{addr}}; location / { proxy_pass http://`+upstream(t)+`; } }`)
	require.Equal(t, "upstream /a", body(t, s.URL+"/a"))

	s.Kill()
	require.True(t, refused(s.Addr()))
	require.NoError(t, s.Restart(false))
	require.Equal(t, "upstream /b", body(t, s.URL+"/b"))

	dir := s.own.dir
	s.Stop()
	require.True(t, refused(s.Addr()))
	require.NoDirExists(t, dir)
}

func TestCaddy(t *testing.T) {
	a, b := upstream(t), upstream(t)
	// Two at a time: neither has a port that is always the same.
	first := Caddy(t, "http://{{addr}}\nreverse_proxy "+a)
	second := Caddy(t, "http://{{addr}}\nreverse_proxy "+b)
	require.Equal(t, "upstream /a", body(t, first.URL+"/a"))
	require.Equal(t, "upstream /b", body(t, second.URL+"/b"))
}

func TestPrometheus(t *testing.T) {
	p := Prometheus(t, `scrape_configs:
  - job_name: itself
    scrape_interval: 100ms
    static_configs: [{targets: ["{{addr}}"]}]
`)
	require.Eventually(t, func() bool {
		up, err := p.Query(t.Context(), `up{job="itself"}`)
		return err == nil && len(up) == 1 && up[0].Value == 1 && up[0].Labels["instance"] == p.Addr()
	}, patience, 10*time.Millisecond)

	scalar, err := p.Query(t.Context(), "scalar(vector(1)) + 1")
	require.NoError(t, err)
	require.Equal(t, []Sample{{Value: 2}}, scalar)

	nothing, err := p.Query(t.Context(), "no_such_metric")
	require.NoError(t, err)
	require.Empty(t, nothing)

	infinite, err := p.Query(t.Context(), "vector(1) / 0")
	require.NoError(t, err)
	require.Equal(t, math.Inf(1), infinite[0].Value)

	year2000 := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	then, err := p.QueryAt(t.Context(), "time()", year2000)
	require.NoError(t, err)
	require.Equal(t, []Sample{{Value: float64(year2000.Unix())}}, then)

	_, err = p.Query(t.Context(), "rate(")
	require.ErrorContains(t, err, "parse error")
	_, err = p.Query(t.Context(), "up[1m]")
	require.ErrorContains(t, err, "matrix")
}

func TestPromtool(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte("scrape_configs: []\n"), 0o600))
	out, err := exec.Command(Promtool(t), "check", "config", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestChromium(t *testing.T) {
	program, flags := Chromium(t)
	cmd := exec.CommandContext(t.Context(), program, append(flags, "--dump-dom", "http://"+upstream(t)+"/page")...)
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "upstream /page")
}

func TestStartChromium(t *testing.T) {
	s := StartChromium(t)
	var version struct{ WebSocketDebuggerURL string }
	require.NoError(t, json.Unmarshal([]byte(body(t, s.URL+"/json/version")), &version))
	require.Contains(t, version.WebSocketDebuggerURL, "ws://"+s.Addr()+"/devtools/browser/")
	s.Stop()
	require.True(t, refused(s.Addr()))
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	t.Setenv("WEIR_NO_SUCH", "")
	_, err := program("WEIR_NO_SUCH", "apt-get install no-such", "no-such-program")
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, "apt-get install no-such")
	require.ErrorContains(t, err, "WEIR_NO_SUCH")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "second"), nil, 0o755))
	found, err := program("WEIR_NO_SUCH", "", "no-such-program", "second")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "second"), found)

	named := filepath.Join(t.TempDir(), "named")
	t.Setenv("WEIR_NO_SUCH", named)
	_, err = program("WEIR_NO_SUCH", "", "second")
	require.ErrorContains(t, err, "not a program")
	require.NotErrorIs(t, err, ErrNotFound, "a test does not skip itself where the variable is wrong")
	require.NoError(t, os.WriteFile(named, nil, 0o755))
	found, err = program("WEIR_NO_SUCH", "", "second")
	require.NoError(t, err)
	require.Equal(t, named, found)
}

func TestStartProgram(t *testing.T) {
	caddy := needed(t, "WEIR_CADDY", "apt-get install caddy", "caddy")
	s := StartProgram(t, "Server address: {{addr}}", caddy, "respond", "--listen", "{{addr}}", "hello")
	require.Equal(t, "hello", body(t, s.URL))
	s.Stop()
	require.True(t, refused(s.Addr()))
}
