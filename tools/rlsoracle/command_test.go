//go:build !js

package rlsoracle

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-go/weir/tools/testserver"
)

// weir builds cmd/weir for a test, and returns its path. Only the first build takes long.
func weir(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.exe")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", file, ".")
	build.Dir = filepath.FromSlash("../../cmd/weir")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return file
}

// TestOracle_command compares weir rls, with the other server's files, with the other server. It goes by real time.
func TestOracle_command(t *testing.T) {
	redis := testserver.NewRedis(t)
	u, err := url.Parse(redis.URL)
	require.NoError(t, err)
	program := weir(t)
	for name, counters := range map[string]string{
		"in process": "",
		"redis":      fmt.Sprintf("  stores: {redis: {redis: %q}}\n  counters: {store: redis}\n", redis.URL),
	} {
		t.Run(name, func(t *testing.T) {
			o := newOtherServer(t, u.Host, flushRedis(t, u.Host), switches{Headers: true, Metadata: true})
			config := filepath.Join(t.TempDir(), "weir.yaml")
			file := "rls:\n  mode: envoy\n  headers: true\n  dynamic_metadata: true\n  no_retry_after: true\n" + counters
			require.NoError(t, os.WriteFile(config, []byte(file), 0o600))
			g, cases := newGenerator(t, 8)
			g.still = true
			for i := range cases {
				c := g.testCase()
				// A boundary of an hour between the answers of the two would be a difference.
				if time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)) < 30*time.Second {
					time.Sleep(31 * time.Second)
				}
				require.NoError(t, o.use(c.rules))
				dir := t.TempDir()
				for i, d := range c.rules {
					require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), []byte(d.file()), 0o600))
				}
				server := testserver.StartProgram(t, "the rate limit service is ready", program,
					"rls", "-ratelimit-config", dir, "-listen", "{{addr}}", "-admin", "off", "-config", config)
				conn, err := grpc.NewClient(server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
				require.NoError(t, err)
				client := ratelimitv3.NewRateLimitServiceClient(conn)
				ask := func(r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
					return client.ShouldRateLimit(t.Context(), r)
				}
				for j, s := range c.steps {
					if diff := o.difference(ask, s.request, make(map[string]int)); diff != "" {
						t.Fatalf("request %d of case %d\n%s\n%s", j+1, i, c, diff)
					}
				}
				require.NoError(t, conn.Close())
				server.Stop()
			}
		})
	}
}
