package hooktest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/telemetry"
)

// A built is a registry with the pipeline "other", which has one limiter, and "p", which is defined when it is first used.
type built struct {
	*scene
	*registry.Registry

	build registry.BuildFunc // of "p"
}

func (x *scene) registry(o registry.Options, build registry.BuildFunc) built {
	b := built{x, registry.New(&o), build}
	x.then(func() { _ = b.Close(context.Background()) })
	if err := b.Define("other", func(b *registry.Builder) error {
		b.Add(ratelimit.New(b.Concurrency("other", limiter.ConcurrencyOptions{PermitLimit: 1}), nil))
		return nil
	}); err != nil {
		panic(err)
	}
	b.uses("other")()
	return b
}

// uses gets a pipeline and runs it.
func (b built) uses(name string) func() {
	return func() {
		p, err := b.GetOrDefine(name, b.build)
		if err == nil {
			_ = p.Execute(b.context(), func(context.Context) error { return nil })
		}
	}
}

// reloads builds a pipeline again.
func (b built) reloads(name string) func() {
	return func() { _ = b.Reload(b.context(), name) }
}

// all does all of fs.
func all(fs ...func()) func() {
	return func() {
		for _, f := range fs {
			f()
		}
	}
}

// first is a drill of the first use of "p", and then of a reload of it.
func (b built) first() drill {
	return drill{do: all(b.uses("p"), b.reloads("p")), also: b.uses("other")}
}

func adds(s ...pipeline.Strategy) registry.BuildFunc {
	return func(b *registry.Builder) error { b.Add(s...); return nil }
}

// A file is a registry with the configuration of a file that uses all functions of k.
func (x *scene) file(k *reload.Kinds, text string, o reload.Options) (b built, w *reload.Watcher) {
	path := filepath.Join(x.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}
	b = x.registry(registry.Options{}, adds())
	o.Kinds, o.Logger, o.Interval = k, slog.New(slog.DiscardHandler), -1
	w = must(reload.Start(context.Background(), b.Registry, path, &o))
	x.then(w.Stop)
	return b, w
}

// filed runs the pipeline "f" of a file whose only strategy is that.
func (x *scene) filed(k *reload.Kinds, strategy string, err error) drill {
	b, _ := x.file(k, "pipelines:\n  f:\n    strategies:\n      - "+strategy+"\n", reload.Options{})
	p := must(b.Get("f"))
	return x.runs(p, err)
}

// parsed parses a file with a section.
func (x *scene) parsed(s reload.Section[struct{}]) drill {
	k := kinds(func(k *reload.Kinds) { reload.RegisterSection(k, "own", s) })
	parse := func(text string) { _, _ = reload.Parse("f", []byte(text), k) }
	return drill{do: func() { parse("own: {}\nallow_empty: true\n") }, also: func() { parse("allow_empty: true\n") }}
}

// A kinds is a [reload.Kinds] with what set has registered.
func kinds(set func(k *reload.Kinds)) *reload.Kinds {
	k := reload.NewKinds()
	set(k)
	return k
}

// A reporter is a [reload.Reporter] of the program's.
type reporter struct{ x *scene }

func (r reporter) ConfigReloaded(time.Time, error) { r.x.hit() }

// heardBy runs a pipeline whose listener is a Telemetry with these options.
func (x *scene) heardBy(o telemetry.Options) drill {
	reader := sdkmetric.NewManualReader()
	o.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	t := must(telemetry.New(&o))
	p := x.heard(t, ratelimit.New(x.limiter(), nil))
	x.then(func() {
		for _, active := range metric(reader, "weir.rate_limiter.lease.active") {
			if active != 0 {
				x.Errorf("%d leases count as held", active)
			}
		}
		_ = t.Close()
	})
	return drill{do: func() {
		_, _ = pipeline.ExecuteValue(x.context(), p, func(context.Context) (int, error) { return 1, nil })
	}}
}

// metric collects the values of one counter or gauge.
func metric(reader *sdkmetric.ManualReader, name string) (values []int64) {
	var read metricdata.ResourceMetrics
	_ = reader.Collect(context.Background(), &read)
	for _, scope := range read.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					values = append(values, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					values = append(values, p.Value)
				}
			}
		}
	}
	return values
}

// A handler is a log handler of the program's.
type handler struct{ x *scene }

func (handler) Enabled(context.Context, slog.Level) bool { return true }
func (h handler) Handle(ctx context.Context, _ slog.Record) error {
	h.x.hit(ctx)
	return nil
}
func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h handler) WithGroup(string) slog.Handler      { return h }

// A hookedBackend is a store's, of which one method is the hook.
type hookedBackend struct {
	*storetest.Memory
	x    *scene
	hook string
}

func (b *hookedBackend) at(ctx context.Context, method string) {
	if b.hook == method {
		b.x.hit(ctx)
	}
}

func (b *hookedBackend) Decide(ctx context.Context, batches []*backend.Batch) error {
	b.at(ctx, "Decide")
	return b.Memory.Decide(ctx, batches)
}

func (b *hookedBackend) Load(ctx context.Context, name string) (*backend.Definition, int64, error) {
	b.at(ctx, "Load")
	return b.Memory.Load(ctx, name)
}

func (b *hookedBackend) Define(ctx context.Context, old int64, next *backend.Definition) (bool, error) {
	b.at(ctx, "Define")
	return b.Memory.Define(ctx, old, next)
}

func (b *hookedBackend) Replace(ctx context.Context, replacements []*backend.Replacement) error {
	b.at(ctx, "Replace")
	return b.Memory.Replace(ctx, replacements)
}

func (b *hookedBackend) Acquire(ctx context.Context, holds []*backend.LeaseRequest) error {
	b.at(ctx, "Acquire")
	return b.Memory.Acquire(ctx, holds)
}

func (b *hookedBackend) Renew(ctx context.Context, holds []*backend.LeaseRequest) error {
	b.at(ctx, "Renew")
	return b.Memory.Renew(ctx, holds)
}

func (b *hookedBackend) Release(ctx context.Context, holds []*backend.LeaseRequest) error {
	b.at(ctx, "Release")
	return b.Memory.Release(ctx, holds)
}

func (b *hookedBackend) Listen(ctx context.Context, ready func(), notice func(backend.Notice)) error {
	b.at(ctx, "Listen")
	return b.Memory.Listen(ctx, ready, notice)
}

// A parted backend has parts that fail on their own.
type parted struct{ *hookedBackend }

func (b parted) ShardOf(string, string) string {
	b.at(context.Background(), "ShardOf")
	return "part"
}

func (b *hookedBackend) Close() error { b.at(context.Background(), "Close"); return b.Memory.Close() }

// events is a store whose events are the hook. It is lost again and again.
func (x *scene) events() drill {
	m := storetest.NewMemory()
	s := must(store.New(m, &store.Options{NoListen: true, FailureThreshold: 1, ProbeInterval: time.Second, OnEvent: func(store.Event) { x.hit() }}))
	l := must(s.FixedWindow("l", limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Second}, nil))
	x.then(func() { _ = s.Close() })
	return drill{
		do: func() {
			m.Fail(errBoom)
			x.tries(l)()
			m.Fail(nil)
			time.Sleep(time.Minute)
			x.tries(l)()
		},
		also: x.tries(l),
	}
}

// ofListener is for a method of a registry's listener.
func ofListener(l func(x *scene) pipeline.Listener) func(x *scene) drill {
	return func(x *scene) drill {
		return x.registry(registry.Options{Listener: l(x)}, adds()).first()
	}
}

// ofBuild is for a build function that is the hook.
func ofBuild(x *scene) drill {
	return x.registry(registry.Options{}, func(*registry.Builder) error { x.hit(); return nil }).first()
}

var telemetryRows = slices.Concat(
	fields(caller, "Enrich SeverityFunc", telemetry.Options{
		Enrich: func(_ context.Context, _ pipeline.Event, attrs []attribute.KeyValue) []attribute.KeyValue {
			return attrs
		},
		SeverityFunc: func(e pipeline.Event) pipeline.Severity { return e.Severity },
	}, func(x *scene, o *telemetry.Options) drill { return x.heardBy(*o) }),
	fields(caller, "ResultFormatter", telemetry.Options{}, func(x *scene, o *telemetry.Options) drill {
		o.Logger = slog.New(slog.NewTextHandler(x.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
		return x.heardBy(*o)
	}),
)

// registered is for a function that a file names: the strategy is built of it, and the callback ends with err.
func registered[F any](name, strategy string, err error, register func(*reload.Kinds, string, F), f F) row {
	return row{"reload.Kinds." + name, caller, func(x *scene) drill {
		return x.filed(kinds(func(k *reload.Kinds) { register(k, "f", hook(x, f)) }), strategy, err)
	}}
}

var registryRows = []row{
	{"registry.BuildFunc registry.Registry.Define(build) registry.Registry.GetOrDefine(build)", caught, ofBuild},
	{"registry.Change.Define", caught, func(x *scene) drill {
		b := x.registry(registry.Options{}, adds())
		change := registry.Change{Define: map[string]registry.BuildFunc{"p": func(*registry.Builder) error { x.hit(); return nil }}}
		return drill{do: func() { _ = b.Apply(x.context(), change) }, also: b.uses("other")}
	}},
	{"registry.Builder.Add(s)", caller, func(x *scene) drill {
		b := x.registry(registry.Options{}, adds(ratelimit.New(x.user("Acquire"), nil)))
		b.uses("p")()
		return drill{do: b.uses("p")}
	}},
	{"registry.Builder.OnDispose(f)", caught, func(x *scene) drill {
		b := x.registry(registry.Options{}, func(b *registry.Builder) error {
			b.OnDispose(func() error { x.hit(); return nil })
			return nil
		})
		b.uses("p")()
		return drill{do: b.reloads("p"), also: b.uses("p")}
	}},
	{"registry.Kept.Make", caught, func(x *scene) drill {
		return x.registry(registry.Options{}, func(b *registry.Builder) error {
			registry.Keep(b, "kept", 1, registry.Kept[int, int]{Kind: "k", Make: func(int) (int, error) { x.hit(); return 1, nil }})
			return nil
		}).first()
	}},
	{"registry.Kept.Reconfigure", caught, func(x *scene) drill {
		n := 0
		b := x.registry(registry.Options{}, func(b *registry.Builder) error {
			n++
			registry.Keep(b, "kept", n, registry.Kept[int, int]{
				Kind: "k", Make: func(int) (int, error) { return 1, nil },
				Reconfigure: func(int, int) error { x.hit(); return nil },
			})
			return nil
		})
		b.uses("p")()
		return drill{do: b.reloads("p"), also: b.uses("other")}
	}},
	{"registry.Options.Listener", caught, ofListener(func(x *scene) pipeline.Listener { return listener{x, registry.EventReload} })},
	{"pipeline.Hooks.InForce", caught, ofListener(func(x *scene) pipeline.Listener { return listener{x, "InForce"} })},
	{"pipeline.Hooks.Forget", ours, func(x *scene) drill {
		b := x.registry(registry.Options{Listener: listener{x, "Forget"}}, adds())
		return drill{do: func() {
			b.uses("p")()
			_ = b.Remove(context.Background(), "p")
		}, also: b.uses("other")}
	}},
	{"registry.Options.ObserveLimiter", caught, func(x *scene) drill {
		return x.registry(registry.Options{ObserveLimiter: func(name string, _ limiter.StatisticsProvider) func() {
			if name == "l" {
				x.hit()
			}
			return func() {}
		}}, func(b *registry.Builder) error {
			b.Add(ratelimit.New(b.Concurrency("l", limiter.ConcurrencyOptions{PermitLimit: 1}), nil))
			return nil
		}).first()
	}},
	{"registry.Partitioned(key)", caller, func(x *scene) drill {
		b := x.registry(registry.Options{}, func(b *registry.Builder) error {
			l := registry.Partitioned(b, "keyed", func(s string) string { x.hit(); return s },
				limiter.ConcurrencyOptions{PermitLimit: 1}, nil)
			b.Add(ratelimit.NewPartitioned(l, pipeline.Operation, nil))
			return nil
		})
		return drill{do: b.uses("p"), also: b.uses("p")}
	}},

	registered("RegisterHandle(handle)", "retry: {handle: f}", errBoom, (*reload.Kinds).RegisterHandle, failed),
	registered("RegisterPermits(permits)", "rate_limiter: {permits: f, concurrency: {permit_limit: 4}}", nil, (*reload.Kinds).RegisterPermits, one),
	registered("RegisterKey(key)", "rate_limiter: {partitioned: {key: f, each: {concurrency: {permit_limit: 4}}}}", nil,
		(*reload.Kinds).RegisterKey, func(context.Context) string { return "a" }),
	registered("RegisterFallback(action)", "fallback: {action: f}", errBoom, (*reload.Kinds).RegisterFallback, fallback.Value[any](nil)),
	registered("RegisterBehavior(behavior)", "chaos_behavior: {behavior: f, enabled: true, rate: 1}", nil,
		(*reload.Kinds).RegisterBehavior, func(context.Context) error { return nil }),
	registered("RegisterOutcome(outcome)", "chaos_outcome: {outcome: f, enabled: true, rate: 1}", nil,
		(*reload.Kinds).RegisterOutcome, func(context.Context) (chaos.Result, bool) { return chaos.Result{Err: errBoom}, true }),
	{"reload.RegisterStrategy(build)", caught, func(x *scene) drill {
		k := kinds(func(k *reload.Kinds) {
			reload.RegisterStrategy(k, "own", func(*registry.Builder, struct{}) (pipeline.Strategy, error) {
				x.hit()
				return x.pass(), nil
			})
		})
		b, w := x.file(k, "pipelines:\n  f:\n    strategies:\n      - own: {}\n", reload.Options{})
		return drill{do: func() { _ = b.Reload(x.context(), "f"); _ = w.Reload(x.context()) }, also: b.uses("other")}
	}},
	{"reload.RegisterLimiter(build)", caught, func(x *scene) drill {
		l := x.limiter()
		k := kinds(func(k *reload.Kinds) {
			reload.RegisterLimiter(k, "own", func(*registry.Builder, string, struct{}) (limiter.Limiter, error) { x.hit(); return l, nil })
		})
		b, w := x.file(k, "pipelines:\n  f:\n    strategies:\n      - rate_limiter: {own: {}}\n", reload.Options{})
		return drill{do: func() { _ = b.Reload(x.context(), "f"); _ = w.Reload(x.context()) }, also: b.uses("other")}
	}},
	{"reload.Section.Names reload.Section.Check", caught, func(x *scene) drill {
		return x.parsed(reload.Section[struct{}]{
			Names: func(*reload.Names, struct{}) { x.hit() }, Check: func(*reload.File, struct{}) error { x.hit(); return nil },
		})
	}},
	{"reload.Section.Pipelines", caught, func(x *scene) drill {
		return x.parsed(reload.Section[struct{}]{Pipelines: func(struct{}) map[string]func(*reload.SectionBuilder) error { x.hit(); return nil }})
	}},
	{"reload.Section.Explain", caller, func(x *scene) drill {
		k := kinds(func(k *reload.Kinds) {
			reload.RegisterSection(k, "own", reload.Section[struct{}]{Explain: func(*reload.File, struct{}) string { x.hit(); return "" }})
		})
		f := must(reload.Parse("f", []byte("own: {}\nallow_empty: true\n"), k))
		return drill{do: func() { _ = f.Explain(io.Discard) }, also: func() { _ = f.Pipelines() }}
	}},
	{"reload.Names.Handle(handle)", caller, func(x *scene) drill {
		k := kinds(func(k *reload.Kinds) {
			reload.RegisterSection(k, "own", reload.Section[struct{}]{Names: func(n *reload.Names, _ struct{}) {
				n.Handle("h", nil, func(any, error) bool { x.hit(); return false })
			}})
		})
		b, _ := x.file(k, "own: {}\npipelines:\n  f:\n    strategies:\n      - retry: {handle: h}\n", reload.Options{})
		return x.runs(must(b.Get("f")), nil)
	}},
	{"reload.Names.Key(build) reload.Names.Store(open)", caught, func(x *scene) drill {
		s := must(store.New(storetest.NewMemory(), &store.Options{NoListen: true}))
		x.then(func() { _ = s.Close() })
		k := kinds(func(k *reload.Kinds) {
			reload.RegisterSection(k, "own", reload.Section[struct{}]{Names: func(n *reload.Names, _ struct{}) {
				n.Key("k", nil, func() (func(context.Context) string, error) {
					x.hit()
					return func(context.Context) string { return "a" }, nil
				})
				n.Store("s", nil, func() (*store.Store, error) { x.hit(); return s, nil })
			}})
		})
		b, _ := x.file(k, "own: {}\npipelines:\n  f:\n    strategies:\n"+
			"      - rate_limiter: {store: s, partitioned: {key: k, each: {concurrency: {permit_limit: 4}}}}\n", reload.Options{})
		return drill{do: func() { _ = b.Reload(x.context(), "f") }, also: b.uses("other")}
	}},
	{"reload.Options.InForce", caught, func(x *scene) drill {
		k := reload.NewKinds()
		b, w := x.file(k, "allow_empty: true\npipelines: {}\n", reload.Options{InForce: func(*reload.File) { x.hit() }})
		return drill{do: func() {
			if err := os.WriteFile(w.Status().Path, []byte("allow_empty: true\n"), 0o600); err != nil {
				panic(err)
			}
			_ = w.Reload(x.context())
		}, also: b.uses("other")}
	}},
	{"reload.Options.Read", caught, func(x *scene) drill {
		b, w := x.file(reload.NewKinds(), "", reload.Options{Read: func() ([]byte, error) {
			x.hit()
			return []byte("allow_empty: true\npipelines: {}\n"), nil
		}})
		return drill{do: func() { _ = w.Reload(x.context()) }, also: b.uses("other")}
	}},
	{"reload.Options.Reporter reload.Reporter.ConfigReloaded", caught, func(x *scene) drill {
		b, w := x.file(reload.NewKinds(), "allow_empty: true\npipelines: {}\n", reload.Options{Reporter: reporter{x}})
		return drill{do: func() { _ = w.Reload(x.context()) }, also: b.uses("other")}
	}},

	{"store.Options.OnEvent", ours, func(x *scene) drill { return x.events() }},
	{"store.Limiter.OnOverride(f) store.Partitioned.OnOverride(f)", ours, func(x *scene) drill {
		s := x.backed("")
		l := must(s.Concurrency("l", limiter.ConcurrencyOptions{PermitLimit: 4}, nil))
		l.OnOverride(func(store.Override) { x.hit() })
		return drill{do: func() {
			_ = l.Override(store.Override{
				Options: limiter.ConcurrencyOptions{PermitLimit: 5}, Until: time.Now().Add(time.Second), By: "ann", Reason: "a sale",
			})
			time.Sleep(2 * time.Second)
		}, also: x.tries(l)}
	}},

	{"telemetry.Options.Logger", caller, func(x *scene) drill {
		return x.heardBy(telemetry.Options{Logger: slog.New(handler{x})})
	}},
	{"telemetry.Telemetry.ObserveLimiter(l)", ours, func(x *scene) drill {
		reader := sdkmetric.NewManualReader()
		t := must(telemetry.New(&telemetry.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}))
		stop := t.ObserveLimiter("hook", x.user("Statistics"))
		t.ObserveLimiter("other", x.limiter())
		x.then(func() { stop(); _ = t.Close() })
		return drill{
			do: func() {
				if n := len(metric(reader, "weir.rate_limiter.permit.available")); n < 1 {
					x.Errorf("%d limiters are collected", n)
				}
			},
			also: func() { t.ObserveLimiter("third", x.limiter())() },
		}
	}},
}

func storeRows() (rows []row) {
	for _, method := range []string{"Decide", "Load", "Define", "Replace"} {
		rows = append(rows, row{"backend.Backend." + method, caught, func(x *scene) drill { return x.shared(method) }})
	}
	for _, method := range []string{"Acquire", "Renew", "Release"} {
		rows = append(rows, row{"backend.Backend." + method, caught, func(x *scene) drill { return x.lent(method) }})
	}
	rows = append(rows, row{"backend.Sharded.ShardOf", ours, func(x *scene) drill { return x.shared("ShardOf") }})
	return append(rows, row{"backend.Backend.Listen", ours, func(x *scene) drill { return x.shared("Listen") }})
}

// backed is a store whose backend has that method as a hook.
func (x *scene) backed(method string) *store.Store {
	var b backend.Backend = &hookedBackend{storetest.NewMemory(), x, method}
	if method == "ShardOf" {
		b = parted{b.(*hookedBackend)}
	}
	s := must(store.New(b, &store.Options{NoListen: method != "Listen"}))
	x.then(func() { _ = s.Close() })
	return s
}

// shared uses a bucket in a store, and gives it other limits.
func (x *scene) shared(method string) drill {
	s := x.backed(method)
	n := 0
	return drill{do: func() {
		n++
		l := must(s.TokenBucket(fmt.Sprint("l", n), limiter.TokenBucketOptions{TokenLimit: 9, TokensPerPeriod: 9, ReplenishmentPeriod: time.Second}, nil))
		x.tries(l)()
		_ = l.Reconfigure(limiter.TokenBucketOptions{TokenLimit: 8, TokensPerPeriod: 8, ReplenishmentPeriod: 2 * time.Second})
		x.tries(l)()
		_ = l.Close()
	}, also: func() {
		l, err := s.FixedWindow("other", limiter.FixedWindowOptions{PermitLimit: 9, Window: time.Second}, nil)
		if err == nil {
			x.tries(l)()
			_ = l.Close()
		}
	}}
}

// lent uses a concurrency limiter in a store for long enough that its leases are renewed.
func (x *scene) lent(method string) drill {
	s := x.backed(method)
	l := must(s.Concurrency("l", limiter.ConcurrencyOptions{PermitLimit: 4}, nil))
	x.then(func() {
		time.Sleep(time.Hour)
		if n := l.Statistics().AvailablePermits; n != 4 {
			x.Errorf("permits are lost: %d of 4", n)
		}
	})
	return drill{do: func() {
		lease, _ := l.TryAcquire(x.context(), 1)
		defer lease.Release()
		time.Sleep(time.Minute)
	}, also: x.tries(l)}
}

// pass is a strategy that does nothing.
func (x *scene) pass() pipeline.Strategy {
	return pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) { return next.Run(ctx) })
}
