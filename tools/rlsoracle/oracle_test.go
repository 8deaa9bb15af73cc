//go:build !js

package rlsoracle

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/testserver"
)

// seeded returns random numbers that are the same for the same seed.
func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

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
		t.Run(s.String(), func(t *testing.T) {
			addr, flush := onMiniredis(t)
			compare(t, newOtherServer(t, addr, flush, s), 60)
		})
	}
}

// TestOracle_Redis is TestOracle with a real Redis for the other server: miniredis does not decide what it counts.
func TestOracle_Redis(t *testing.T) {
	server := testserver.NewRedis(t)
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	compare(t, newOtherServer(t, u.Host, flushRedis(t, u.Host), allSwitches[1]), 60)
}

func compare(t *testing.T, o *otherServer, cases uint64) {
	t.Helper()
	seed := number(t, "WEIR_ORACLE_SEED", uint64(time.Now().UnixNano()))
	if testing.Short() {
		cases /= 10
	}
	cases = number(t, "WEIR_ORACLE_CASES", cases)
	g := &generator{Rand: seeded(seed), newer: o.newer()}
	for i := range cases {
		c := g.testCase()
		if diff := o.difference(t, c); diff != "" {
			t.Fatalf("case %d of WEIR_ORACLE_SEED=%d: the services differ with %v\n%s\n%s", i, seed, o.switches, c, diff)
		}
	}
}

// TestGenerator sees that the random cases have what they are to compare.
func TestGenerator(t *testing.T) {
	addr, flush := onMiniredis(t)
	o := newOtherServer(t, addr, flush, switches{})
	g := &generator{Rand: seeded(1)}
	seen := map[string]int{}
	for range 200 {
		c := g.testCase()
		require.NoError(t, o.use(c.rules))
		now := time.Unix(1e9, 0)
		for _, s := range c.steps {
			now = now.Add(s.after)
			a := o.ask(now, s.request)
			require.NoError(t, a.err)
			require.Nil(t, a.panicked)
			a.response = o.expected(now, s.request, a.response)
			seen[a.response.OverallCode.String()]++
			for i, status := range a.response.Statuses {
				seen["status "+status.Code.String()]++
				seen[fmt.Sprintf("limit %t", status.CurrentLimit != nil)]++
				if s.request.Descriptors[i].Limit != nil {
					seen["override "+status.Code.String()]++
				}
			}
		}
	}
	t.Log(seen)
	for _, what := range []string{
		"OK", "OVER_LIMIT", "status OK", "status OVER_LIMIT", "limit true", "limit false", "override OK", "override OVER_LIMIT",
	} {
		require.Greater(t, seen[what], 200, what)
	}
}
