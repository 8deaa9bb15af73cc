package dashboard

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
)

var errBoom = errors.New("boom")

// A scene is a registry with a few pipelines, and a dashboard for it.
type scene struct {
	t         *testing.T
	events    *Events
	registry  *registry.Registry
	dashboard *Dashboard
	log       strings.Builder
}

type clientKey struct{}

func withClient(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// newScene makes a scene. change can change the options; it can be nil.
func newScene(t *testing.T, change func(s *scene, o *Options)) *scene {
	t.Helper()
	s := &scene{t: t, events: new(Events)}
	s.registry = registry.New(&registry.Options{Listener: s.events})
	s.define("orders", func(b *registry.Builder) error {
		b.Add(
			ratelimit.New(b.TokenBucket("bucket", limiter.TokenBucketOptions{TokenLimit: 3, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}), nil),
			retry.New(&retry.Options{MaxRetries: 1, Delay: time.Nanosecond}),
			circuitbreaker.New(&circuitbreaker.Options{ConsecutiveFailures: 3, BreakDuration: time.Hour}),
		)
		return nil
	})
	s.define("api", func(b *registry.Builder) error {
		client := func(ctx context.Context) string { c, _ := ctx.Value(clientKey{}).(string); return c }
		l := registry.Partitioned(b, "per-client", client, limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}, nil)
		b.Add(ratelimit.NewPartitioned(l, func(ctx context.Context) context.Context { return ctx }, nil))
		return nil
	})
	o := Options{
		Registry: s.registry, Events: s.events, Instance: "test-1",
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	if change != nil {
		change(s, &o)
	}
	s.dashboard = weir.Must(New(o))
	t.Cleanup(func() {
		require.NoError(t, s.dashboard.Close())
		require.NoError(t, s.registry.Close(context.Background()))
	})
	return s
}

// define defines a pipeline and builds it.
func (s *scene) define(name string, build registry.BuildFunc) {
	s.t.Helper()
	require.NoError(s.t, s.registry.Define(name, build))
	_, err := s.registry.Get(name)
	require.NoError(s.t, err)
}

// execute runs a pipeline n times with a callback that returns err.
func (s *scene) execute(ctx context.Context, name string, n int, err error) {
	s.t.Helper()
	p, getErr := s.registry.Get(name)
	require.NoError(s.t, getErr)
	for range n {
		_ = p.Execute(ctx, func(context.Context) error { return err })
	}
}

// get asks for a page as curl does, unless there are headers.
func (s *scene) get(path string, headers ...string) *httptest.ResponseRecorder {
	return s.send(httptest.NewRequest(http.MethodGet, path, nil), headers...)
}

// html asks for a page as a browser does, and returns it.
func (s *scene) html(path string) string {
	s.t.Helper()
	w := s.get(path, "Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	require.Equal(s.t, "text/html; charset=utf-8", w.Header().Get("Content-Type"), path)
	return w.Body.String()
}

// view returns what a page shows.
func (s *scene) view(path string) *view {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	snap, err := s.dashboard.snapshot(s.t.Context(), tick/2)
	require.NoError(s.t, err)
	name, f := route(r)
	return newView(snap, name, filterOf(r), f)
}

// post sends the form of an action.
func (s *scene) post(form url.Values, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/action", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return s.send(r, headers...)
}

func (s *scene) send(r *http.Request, headers ...string) *httptest.ResponseRecorder {
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.dashboard.ServeHTTP(w, r)
	return w
}

// source is the source of a strategy of a pipeline without an instance.
func source(name, strategy string) pipeline.Source {
	return pipeline.Source{Pipeline: name, Strategy: strategy}
}
