package gatewayconfig_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

// A site serves the routes of a file with an empty answer.
type site struct {
	path    string
	w       *reload.Watcher
	r       *registry.Registry
	handler http.Handler
	builds  int
	stores  int
}

func (s *site) pipelines(g gatewayconfig.Gateway) map[string]func(b *reload.SectionBuilder) error {
	return map[string]func(b *reload.SectionBuilder) error{
		gatewayconfig.PipelineName: func(b *reload.SectionBuilder) error { return s.build(b, g) },
	}
}

func (s *site) build(b *reload.SectionBuilder, g gatewayconfig.Gateway) error {
	s.builds++
	limits, err := g.NewLimits(b, nil, nil)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for _, r := range g.Routes {
		wrap, err := limits.Wrap(g.PoliciesOf(r)...)
		if err != nil {
			return err
		}
		mux.Handle(r.Match, wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	}
	s.handler = mux
	return nil
}

// serve puts a file in force.
func serve(t *testing.T, text string) *site {
	s := &site{path: filepath.Join(t.TempDir(), "weir.yaml")}
	s.write(t, text)
	shared, err := store.New(storetest.NewMemory(), &store.Options{NoListen: true})
	require.NoError(t, err)
	r := registry.New(nil)
	s.r = r
	t.Cleanup(func() {
		s.w.Stop()
		assert.NoError(t, r.Close(context.Background()))
		assert.NoError(t, shared.Close())
	})
	k := reload.NewKinds()
	gatewayconfig.Register(k, gatewayconfig.Runtime{
		Pipelines: s.pipelines,
		Store: func(name string, o fileconfig.Store) (*store.Store, error) {
			s.stores++
			assert.Equal(t, "shared", name)
			assert.Equal(t, "redis://127.0.0.1", o.Redis)
			return shared, nil
		},
	})
	s.w, err = reload.Start(t.Context(), r, s.path, &reload.Options{
		Kinds: k, Interval: -1, Settle: time.Millisecond, Logger: slog.New(slog.DiscardHandler), Require: []string{gatewayconfig.PipelineName},
	})
	require.NoError(t, err)
	return s
}

func (s *site) write(t *testing.T, text string) {
	require.NoError(t, os.WriteFile(s.path, []byte(text), 0o600))
}

// get returns the status of a request and the header of the answer. fields are name, value, and so on.
func (s *site) get(path string, fields ...string) (int, http.Header) {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = "10.1.2.3:4711"
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w.Code, w.Result().Header
}

const limited = `limiters:
  one: {partitioned: {key: KEY, each: {token_bucket: {token_limit: 3, tokens_per_period: 2, replenishment_period: 1m}}}}
gateway:
  trusted_proxies: [10.0.0.0/8]
  stores: {shared: {redis: "redis://127.0.0.1"}}
  keys:
    client: {address: {ipv6_bits: 32}}
    header: {header: X-Key}
    user: {path_value: user}
    route: {route: {}}
    claim: {jwt_claim: {claim: sub, unverified: true}}
    both: {composite: [header, user]}
  upstreams: {u: {addresses: ["http://127.0.0.1:1"]}}
  policies: {p: {limiter: one, headers: draft-11, cost: 3, body: problem-json}}
  routes: [{match: "GET /{user}", upstream: u, policies: [p]}, {match: "GET /a/{user}", upstream: u, policies: [p]}]
`

// Requests that differ in what the key is have limiters of their own.
func TestKeys(t *testing.T) {
	for key, c := range map[string]struct{ same, other []string }{
		"client": {[]string{"/x", "X-Forwarded-For", "2001:db8::1"}, []string{"/x", "X-Forwarded-For", "2001:db9::1"}},
		"header": {[]string{"/x", "X-Key", "a"}, []string{"/x", "X-Key", "b"}},
		"user":   {[]string{"/a/x", "X-Key", "a"}, []string{"/y", "X-Key", "a"}},
		"route":  {[]string{"/x", "X-Key", "a"}, []string{"/a/x", "X-Key", "a"}},
		"claim":  {[]string{"/x", "Authorization", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0."}, []string{"/x", "Authorization", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJiIn0."}},
		"both":   {[]string{"/a/x", "X-Key", "a"}, []string{"/y", "X-Key", "a"}},
	} {
		for _, store := range []string{"", ", store: shared"} {
			s := serve(t, strings.Replace(strings.Replace(limited, "KEY", key, 1), "1m}}}", "1m}}}"+store, 1))
			first, _ := s.get(c.same[0], c.same[1:]...)
			again, header := s.get(c.same[0], c.same[1:]...)
			other, _ := s.get(c.other[0], c.other[1:]...)
			assert.Equal(t, []int{200, 429, 200}, []int{first, again, other}, key)
			assert.Equal(t, `"p";q=3;w=120`, header.Get("RateLimit-Policy"), "the quota is that of each key")
			assert.Equal(t, "application/problem+json", header.Get("Content-Type"))
			assert.Equal(t, store != "", s.stores > 0)
		}
	}
}

// While a limit is overridden, the fields tell the limit in force.
func TestPolicies_QuotaDuringOverride(t *testing.T) {
	for _, store := range []string{"", ", store: shared"} {
		s := serve(t, strings.Replace(strings.Replace(limited, "KEY", "header", 1), "1m}}}", "1m}}}"+store, 1))
		told := func() string {
			_, header := s.get("/x", "X-Key", "a")
			return header.Get("RateLimit-Policy") + " " + header.Get("RateLimit")
		}
		assert.Equal(t, `"p";q=3;w=120 "p";r=0;t=120`, told(), store)
		require.NoError(t, s.r.Override(t.Context(), registry.Override{
			Limiter: "one", Until: time.Now().Add(time.Hour), By: "ann", Reason: "a sale",
			Options: limiter.TokenBucketOptions{TokenLimit: 9, TokensPerPeriod: 2, ReplenishmentPeriod: time.Minute},
		}))
		assert.Equal(t, `"p";q=9;w=300 "p";r=3;t=180`, told(), store)
		require.NoError(t, s.r.EndOverride(t.Context(), "one", "ann"))
		assert.Contains(t, told(), `"p";q=3;w=120`, store)
	}
}

// A key that is made in another way is another key, although it has the same name and its function the same code.
func TestKeys_Reload(t *testing.T) {
	s := serve(t, strings.Replace(limited, "KEY", "header", 1))
	status, _ := s.get("/x", "X-Key", "a")
	assert.Equal(t, 200, status)
	status, _ = s.get("/x", "X-Key", "a")
	assert.Equal(t, 429, status)

	s.write(t, "# nothing else\n"+strings.Replace(limited, "KEY", "header", 1))
	require.NoError(t, s.w.Reload(t.Context()))
	assert.Equal(t, 1, s.builds, "what means the same is not built again")

	s.write(t, strings.NewReplacer("KEY", "header", "X-Key", "X-Other").Replace(limited))
	require.NoError(t, s.w.Reload(t.Context()))
	assert.Equal(t, 2, s.builds)
	status, _ = s.get("/x", "X-Key", "b", "X-Other", "a")
	assert.Equal(t, 429, status, "the limiter of the key a has kept what it has counted")
	status, _ = s.get("/x", "X-Key", "a", "X-Other", "b")
	assert.Equal(t, 200, status)
}

func TestReload_Fixed(t *testing.T) {
	text := strings.Replace(limited, "KEY", "header", 1)
	s := serve(t, text)
	s.write(t, strings.Replace(text, "gateway:\n", "gateway:\n  listen: ':8080'\n  admin: 127.0.0.1:9900\n", 1))
	require.NoError(t, s.w.Reload(t.Context()), "the defaults, written out")
	s.write(t, strings.NewReplacer("gateway:\n", "gateway:\n  listen: ':8081'\n  dashboard: {show_keys: true}\n  h2c: true\n", "redis://", "redis://user:hunter2@").Replace(text))
	err := s.w.Reload(t.Context())
	const message = ": cannot change while the program runs; restart it with this file, or undo the change"
	for _, place := range []string{":4:3: gateway.listen", ":5:15: gateway.dashboard.show_keys", ":6:3: gateway.h2c", ":8:3: gateway.stores"} {
		assert.ErrorContains(t, err, place+message)
	}
	assert.NotContains(t, err.Error(), "hunter2")
	assert.Equal(t, 2, s.builds)
}

// A policy can say that it tells clients nothing where the others do.
func TestPolicy_Headers(t *testing.T) {
	text := strings.NewReplacer("KEY", "header", "gateway:", "gateway:\n  headers: legacy", "headers: draft-11, ", "").Replace(limited)
	_, header := serve(t, text).get("/x")
	assert.Equal(t, "3", header.Get("X-RateLimit-Limit"))
	_, header = serve(t, strings.Replace(text, "cost: 3", "cost: 3, headers: none", 1)).get("/x")
	assert.Empty(t, header.Get("X-RateLimit-Limit"))
}

func TestBuild_KeyFileIsMissing(t *testing.T) {
	text := strings.NewReplacer("KEY", "claim", "unverified: true", "secret_file: "+filepath.Join(t.TempDir(), "missing")).Replace(limited)
	_, err := parse(text)
	require.NoError(t, err, "a file is checked also where its key files are not")
	k := reload.NewKinds()
	gatewayconfig.Register(k, gatewayconfig.Runtime{Pipelines: new(site).pipelines})
	f, err := reload.Parse("f", []byte(text), k)
	require.NoError(t, err)
	r := registry.New(nil)
	defer func() { assert.NoError(t, r.Close(context.Background())) }()
	err = r.Apply(t.Context(), f.Change(nil))
	require.ErrorContains(t, err, `f:3:1: gateway: limiter "one": the key function "claim": stat `)
}

// A file that was parsed to be checked cannot come into force.
func TestBuild_NoRuntime(t *testing.T) {
	f, err := parse(minimal)
	require.NoError(t, err)
	r := registry.New(nil)
	defer func() { assert.NoError(t, r.Close(context.Background())) }()
	require.ErrorContains(t, r.Apply(t.Context(), f.Change(nil)), "the file can only be checked here")
}
