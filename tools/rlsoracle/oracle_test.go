//go:build !js

package rlsoracle

import (
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/testserver"
)

// newGenerator returns a generator that makes the same cases for the same seed, and the number of cases.
func newGenerator(t *testing.T, cases uint64) (*generator, uint64) {
	t.Helper()
	seed := number(t, "WEIR_ORACLE_SEED", uint64(time.Now().UnixNano()))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("WEIR_ORACLE_SEED=%d", seed)
		}
	})
	return &generator{Rand: rand.New(rand.NewPCG(seed, seed))}, number(t, "WEIR_ORACLE_CASES", cases)
}

// number returns the number in an environment variable, or the default.
func number(t *testing.T, variable string, byDefault uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return byDefault
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, "%s is a number", variable)
	return n
}

// allSwitches are the sets of switches that the services are compared with.
var allSwitches = []switches{
	{},
	{Headers: true, Metadata: true},
	{Headers: true, Shadow: true},
	{Metadata: true, Quota: true},
}

// TestOracle compares the services by random rules and requests.
func TestOracle(t *testing.T) {
	for _, s := range allSwitches {
		t.Run(s.String(), func(t *testing.T) { compare(t, onMiniredis(t, s), 60) })
	}
}

// TestOracle_Redis is TestOracle with a real Redis for the other server: miniredis does not decide what it counts.
func TestOracle_Redis(t *testing.T) {
	u, err := url.Parse(testserver.NewRedis(t).URL)
	require.NoError(t, err)
	compare(t, newOtherServer(t, u.Host, flushRedis(t, u.Host), allSwitches[1]), 60)
}

func compare(t *testing.T, o *otherServer, cases uint64) {
	t.Helper()
	g, cases := newGenerator(t, cases)
	seen := make(map[string]int)
	for i := range cases {
		c := g.testCase()
		require.NoError(t, o.use(c.rules))
		inBubble(t, func(t *testing.T) {
			ask := asking(ours(t, c.rules, o.switches))
			for j, s := range c.steps {
				time.Sleep(s.after)
				if diff := o.difference(ask, s.request, seen); diff != "" {
					t.Fatalf("request %d at %s of case %d: the services differ with %v\n%s\n%s",
						j+1, time.Now().UTC().Format(time.RFC3339Nano), i, o.switches, c, diff)
				}
			}
		})
	}
	// The cases have what they are to compare.
	for _, what := range []string{"no limit", "limit OK", "limit OVER_LIMIT", "override OK", "override OVER_LIMIT"} {
		assert.True(t, seen[what] > 0 || cases < 5, "%s in %v", what, seen)
	}
}
