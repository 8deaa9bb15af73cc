package dashboard

import (
	"context"
	"flag"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/strategies/ratelimit"
)

var update = flag.Bool("update", false, "write the pages in testdata again")

// The pages of a program in which all kinds of things are and go wrong. `go test ./dashboard -update` writes them again.
func TestPages_Golden(t *testing.T) {
	pages := map[string]string{
		"overview.json": "overview.json", "overview.txt": "overview.txt", "overview.html": "overview",
		"limiters.html": "limiters", "pipelines.html": "pipelines", "circuits.html": "circuits", "keys.html": "keys", "events.html": "events",
		"stores.html": "stores", "files.html": "files", "jobs.html": "jobs",
		"job.html": "jobs?type=semaphore&name=imports", "job.txt": "jobs.txt?type=semaphore&name=imports",
		"check.html": "check?pipeline=orders", "check.txt": "check.txt?pipeline=orders",
		"override.html": "action?do=override&target=bucket",
	}
	const client = "198.51.100.7"
	testdata, err := os.OpenRoot("testdata")
	require.NoError(t, err)
	defer func() { _ = testdata.Close() }()
	t.Chdir(t.TempDir()) // the path of the configuration is on the pages
	synctest.Test(t, func(t *testing.T) {
		s := acting(t, func(s *scene, o *Options) {
			o.Jobs, o.KeyHash = newFakeJobs(), &KeyHash{secret: []byte("not a secret")}
			st := weir.Must(store.New(storetest.NewMemory(), &store.Options{NoListen: true, OnEvent: s.events.OnStoreEvent("redis")}))
			t.Cleanup(func() { assert.NoError(t, st.Close()) })
			o.Stores = map[string]*store.Store{"redis": st}
			s.define("trial", func(b *registry.Builder) error {
				b.Add(ratelimit.New(b.Concurrency("trial", limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 3}), &ratelimit.Options{Shadow: true}))
				return nil
			})
			require.NoError(t, os.WriteFile("weir.yaml", []byte("pipelines: {filed: {strategies: [{rate_limiter: {name: filed, concurrency: {permit_limit: 3}}}]}}\n"), 0o600))
			w, err := reload.Start(t.Context(), s.registry, "weir.yaml", &reload.Options{Interval: time.Hour, Reporter: s.events, Logger: o.Logger})
			require.NoError(t, err)
			t.Cleanup(w.Stop)
			o.Watchers = []*reload.Watcher{w}
		})
		s.get("/overview") // keys are counted from now on
		status, text := s.act(ActionOverride, "bucket", "set.token_limit", "4", "for", "1h", "reason", "sale")
		require.Equal(t, 200, status, text)
		s.execute(t.Context(), "orders", 2, errBoom)
		s.execute(t.Context(), "orders", 7, nil)
		s.execute(withClient(t.Context(), client), "api", 4, nil)
		s.execute(withClient(t.Context(), "192.0.2.8"), "api", 2, nil)
		require.NoError(t, os.WriteFile("weir.yaml", []byte("pipelines: {filed: {}}\n"), 0o600))
		status, _ = s.act(ActionReload, "weir.yaml")
		require.Equal(t, 422, status)
		trial := weir.Must(s.registry.Get("trial"))
		_ = trial.Execute(t.Context(), func(context.Context) error {
			time.Sleep(tick + time.Millisecond)
			s.execute(t.Context(), "trial", 3, nil)
			time.Sleep(tick)
			synctest.Wait()
			for name, page := range pages {
				got := s.get("/"+page, "Accept", "text/html").Body.String()
				assert.NotContains(t, got, client, "keys are hashes")
				if *update {
					require.NoError(t, testdata.WriteFile(name, []byte(got), 0o644))
				}
				want, err := testdata.ReadFile(name)
				require.NoError(t, err)
				assert.Equal(t, string(want), got, name)
			}
			return nil
		})
	})
}
