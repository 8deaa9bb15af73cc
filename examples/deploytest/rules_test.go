package deploytest

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/testserver"
)

// promtool runs promtool in the folder with Prometheus's files.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testserver.Promtool(t), args...)
	cmd.Dir = filepath.Join(deploy, "prometheus")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestPrometheus_ConfigurationIsValid(t *testing.T) {
	promtool(t, "check", "config", "prometheus.yml")
}

func TestAlerts_FireWhenTheyShould(t *testing.T) { promtool(t, "test", "rules", "alerts_test.yml") }

type rules struct {
	Groups []struct{ Rules []rule }
}

type rule struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) (all []rule) {
	t.Helper()
	for _, g := range decodeYAML[rules](t, deploy+"/prometheus/alerts.yml").Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// Every alert has a test of its time, and is on the page for operators, which names no other.
func TestAlerts_AreTestedAndDocumented(t *testing.T) {
	tested := string(read(t, deploy+"/prometheus/alerts_test.yml"))
	page := string(read(t, root+"/docs/operations.md"))
	var documented, all []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(Weir\\w+)` ").FindAllStringSubmatch(page, -1) {
		documented = append(documented, row[1])
	}
	for _, r := range alerts(t) {
		all = append(all, r.Alert)
		assert.True(t, regexp.MustCompile(`alertname(: |=")`+r.Alert+`\b`).MatchString(tested), "%s has no test", r.Alert)
		assert.Contains(t, []string{"page", "warn", "info"}, r.Labels["severity"], r.Alert)
		assert.NotEmpty(t, r.Annotations["description"], r.Alert)
		assert.Contains(t, r.Annotations["summary"], "$labels.instance", "%s says which instance", r.Alert)
	}
	assert.ElementsMatch(t, all, documented)
}
