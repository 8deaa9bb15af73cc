//go:build !js

package rlsoracle

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-go/weir/tools/testserver"
)

// dial returns a client of a server.
func dial(t *testing.T, s *testserver.Server) ratelimitv3.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return ratelimitv3.NewRateLimitServiceClient(conn)
}

// TestOracle_command compares weir rls, with the other server's files, with the other server. It goes by real time.
func TestOracle_command(t *testing.T) {
	redis := testserver.NewRedis(t)
	u, err := url.Parse(redis.URL)
	require.NoError(t, err)
	flush := flushRedis(t, u.Host)
	for name, args := range map[string][]string{
		"in process": nil,
		"redis":      {"-redis", redis.URL},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOtherServer(t, u.Host, flush, switches{Headers: true, Metadata: true})
			config := filepath.Join(t.TempDir(), "weir.yaml")
			file := "rls:\n  mode: envoy\n  headers: true\n  dynamic_metadata: true\n"
			if len(args) > 0 {
				file += fmt.Sprintf("  stores: {redis: {redis: %q}}\n  counters: {store: redis}\n", redis.URL)
			}
			require.NoError(t, os.WriteFile(config, []byte(file), 0o600))
			seed := number(t, "WEIR_ORACLE_SEED", uint64(time.Now().UnixNano()))
			g := &generator{Rand: seeded(seed), newer: o.newer(), still: true}
			for i := range number(t, "WEIR_ORACLE_CASES", 8) {
				c := g.testCase()
				// A boundary of an hour between the answers of the two would be a difference.
				if time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)) < 30*time.Second {
					time.Sleep(31 * time.Second)
				}
				require.NoError(t, o.use(c.rules))
				var files []string
				for _, d := range c.rules {
					files = append(files, d.file())
				}
				server := startWeir(t, files, "-config", config)
				client := dial(t, server)
				ask := func(r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
					return client.ShouldRateLimit(t.Context(), r)
				}
				for j, s := range c.steps {
					if diff := o.differenceOf(ask, s.request); diff != "" {
						t.Fatalf("request %d of case %d of WEIR_ORACLE_SEED=%d\n%s\n%s", j+1, i, seed, c, diff)
					}
				}
				server.Stop()
			}
		})
	}
}

// TestScenarios_command checks weir rls with the other server's files, in both modes, by the scenarios up to where time
// passes. A second can be over between two requests, so windows of a second are left out.
func TestScenarios_command(t *testing.T) {
	for _, mode := range []string{"envoy", "exact"} {
		for _, s := range scenarios {
			script := s.script
			if mode == "exact" && s.exact != "" {
				script = s.exact
			}
			if strings.Contains(s.name, "second") {
				continue
			}
			if before, _, waits := strings.Cut(script, "wait "); waits {
				script = before
			}
			t.Run(mode+"/"+s.name, func(t *testing.T) {
				var files []string
				for _, d := range s.load(t) {
					files = append(files, d.file())
				}
				// Windows of a minute begin with the minute.
				if now := time.Now(); mode == "envoy" && now.Second() > 55 {
					time.Sleep(time.Until(now.Truncate(time.Minute).Add(time.Minute)))
				}
				client := dial(t, startWeir(t, files, "-mode", mode))
				run(t, script, func(r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
					return client.ShouldRateLimit(t.Context(), r)
				})
			})
		}
	}
}

// TestClient asks weir rls by the client that the other server comes with. It has no exit status for a rejection, and
// writes the response as protobuf's text.
func TestClient(t *testing.T) {
	server := startWeir(t, []string{`
domain: edge
descriptors:
- {key: a, value: b, rate_limit: {unit: day, requests_per_unit: 2, name: two}}
`}, "-mode", "envoy")
	ask := func() string {
		out, status := output(t, client, "-dial_string", server.Addr(), "-domain", "edge", "-descriptors", "a=b", "-descriptors", "c=d")
		require.Zero(t, status, out)
		_, response, ok := strings.Cut(out, "response: ")
		require.True(t, ok, out)
		return strings.Join(strings.Fields(response), " ")
	}
	for i, want := range []string{"limit_remaining:1", "", "overall_code:OVER_LIMIT"} {
		response := ask()
		assert.Contains(t, response, want)
		assert.Contains(t, response, `current_limit:{name:"two" requests_per_unit:2 unit:DAY}`)
		assert.Equal(t, i < 2, strings.HasPrefix(response, "overall_code:OK statuses:{code:OK "), response)
		assert.Equal(t, i == 2, strings.Contains(response, `key:"retry-after"`), response)
	}

	server.Stop()
	out, status := output(t, client, "-dial_string", server.Addr(), "-domain", "edge", "-descriptors", "a=b")
	assert.Equal(t, 1, status)
	assert.Contains(t, out, "request error: ")
}
