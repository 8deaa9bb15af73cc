package hooktest

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rows = slices.Concat(limiterRows, pipelineRows, strategyRows, registryRows, telemetryRows, storeRows(), httpRows, dashboardRows)

// known are the hooks whose rows fail, in one mode ("hook mode") or in several ("hook"), each with the reason. It is
// to be empty.
var known = map[string]string{}

func TestHooks(t *testing.T) {
	for _, r := range rows {
		for _, mode := range modes {
			name := strings.Fields(r.hooks)[0]
			t.Run(name+" "+mode, func(t *testing.T) {
				if why := cmp.Or(known[name], known[name+" "+mode]); why != "" {
					t.Skip(why)
				}
				r.run(t, mode)
			})
		}
	}
}

// Each hook of the exported API has a row, or a reason why it has none.
func TestHooks_AreComplete(t *testing.T) {
	found := discover(t)
	listed := map[string]bool{}
	for _, r := range rows {
		for name := range strings.FieldsSeq(r.hooks) {
			assert.False(t, listed[name], "%s is in two rows", name)
			listed[name] = true
			if !slices.Contains(found, name) && !slices.Contains(optional, name) {
				t.Errorf("%s has a row, but there is no such hook", name)
			}
		}
	}
	for name, why := range excluded {
		assert.False(t, listed[name], "%s has a row and is excluded: %s", name, why)
		assert.Contains(t, found, name, "is excluded, but there is no such hook")
	}
	for _, name := range found {
		if !listed[name] && excluded[name] == "" {
			t.Errorf("%s is a new hook: add a row to a table of tools/hooktest that drives it, "+
				"or, if no function of the program is called through it, a line with the reason to excluded", name)
		}
	}
}
