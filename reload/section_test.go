package reload_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// A server is a section with everything that sections can have.
type server struct {
	Listen  string             `yaml:"listen,omitempty" reload:"fixed,default=:80" doc:"Where to listen."`
	Idle    time.Duration      `yaml:"idle,omitempty" reload:"off,fixed,default=2m"`
	Size    int                `yaml:"size,omitempty" reload:"least=2,most=8"`
	Limits  serverLimits       `yaml:"limits,omitempty"`
	Keys    map[string]*keying `yaml:"keys,omitempty"`
	Stores  []string           `yaml:"stores,omitempty"`
	Hosts   map[string]host    `yaml:"hosts,omitempty"`
	Default string             `yaml:"default,omitempty" reload:"in=hosts"`
	Order   []string           `yaml:"order,omitempty" reload:"in=hosts"`
	Through string             `yaml:"through,omitempty" reload:"pipeline"`
	Secret  string             `yaml:"-"`
}

type serverLimits struct {
	Workers int     `yaml:"workers,omitempty" reload:"fixed"`
	Ratio   float64 `yaml:"ratio,omitempty" reload:"least=0.5"`
}

// A keying is one of its fields.
type keying struct {
	_      struct{} `reload:"oneof=key"`
	Header string   `yaml:"header,omitempty"`
	Path   *int     `yaml:"path,omitempty"`
}

type host struct {
	Limiter  string            `yaml:"limiter,omitempty" reload:"limiter"`
	Limiters map[string]string `yaml:"limiters,omitempty" reload:"limiter"`
	Weight   int               `yaml:"weight,omitempty"`
}

func (h host) Validate() error {
	if h.Weight < 0 {
		return &weir.OptionsError{Fields: []weir.FieldError{{Path: "Weight", Problem: "must be at least 0", Value: h.Weight}}}
	}
	return nil
}

// sections returns Kinds with the section. do is called by the build function; if nil, the section has no pipelines.
func sections(do func(b *reload.SectionBuilder, s server) error) *reload.Kinds {
	k := reload.NewKinds()
	k.RegisterKey("registered", func(context.Context) string { return "" })
	registerServer(k, do)
	return k
}

func registerServer(k *reload.Kinds, do func(b *reload.SectionBuilder, s server) error) {
	memory, err := store.New(storetest.NewMemory(), &store.Options{NoListen: true})
	reload.RegisterSection(k, "server", reload.Section[server]{
		Doc: "What is served.",
		Names: func(n *reload.Names, s server) {
			for name, key := range s.Keys {
				n.Key(name, key, func() (func(context.Context) string, error) {
					if key.Header == "broken" {
						return nil, errTransient
					}
					return func(ctx context.Context) string { return key.Header }, nil
				})
			}
			for _, name := range s.Stores {
				n.Store(name, nil, func() (*store.Store, error) { return memory, err })
			}
			n.Handle("never", nil, func(any, error) bool { return false })
		},
		Check: func(f *reload.File, s server) error {
			var wrong []weir.FieldError
			for name, h := range s.Hosts {
				if info, ok := f.Limiter(h.Limiter); ok && info.Kind == "unlimited" {
					wrong = append(wrong, weir.FieldError{Path: fmt.Sprintf("Hosts[%s].Limiter", name), Problem: "must limit something"})
				}
			}
			if wrong != nil {
				return &weir.OptionsError{Fields: wrong}
			}
			return nil
		},
		Pipelines: func(s server) map[string]func(b *reload.SectionBuilder) error {
			if do == nil {
				return nil
			}
			return map[string]func(b *reload.SectionBuilder) error{"server": func(b *reload.SectionBuilder) error { return do(b, s) }}
		},
	})
}

// limiting adds a rate limiter for the limiter of the host "a".
func limiting(b *reload.SectionBuilder, s server) error {
	if s.Hosts["a"].Limiter == "" {
		return nil
	}
	l, err := b.Limiter(s.Hosts["a"].Limiter)
	if err == nil {
		b.Add(ratelimit.New(l, nil))
	}
	return err
}

func TestSection_Problems(t *testing.T) {
	k := sections(limiting)
	const rest = "limiters:\n  slow: {concurrency: {permit_limit: 1}}\n  free: {unlimited: {}}\npipelines: {p: {strategies: []}}\n"
	for text, want := range map[string]string{
		"{}": "",
		"{listen: ':81', idle: off, size: 8, limits: {workers: 3, ratio: 0.5}, keys: {k: {path: 1}}, hosts: {a: {limiter: slow, limiters: {x: slow}}}, default: a, order: [a], through: p}": "",
		"":                                  "5:8: server: must be a mapping of options, found nothing; {} is one without any",
		"[]":                                "must be a mapping of options, found a list",
		"{lsten: 1}":                        `5:10: server: unknown field "lsten", did you mean "listen"?`,
		"{secret: x}":                       `"secret" can only be set by the program`,
		"{listen: 1}":                       `5:18: server.listen: must be text, found the number 1; write "1", with the quotes`,
		"{listen: ''}":                      "must not be empty; for the default, which is :80, leave listen out",
		"{idle: 0s}":                        `must not be 0; for the default, which is 2m, leave idle out, or write "off" for none`,
		"{size: 1}":                         "5:16: server.size: must be at least 2, found 1",
		"{size: 9}":                         "must be at most 8, found 9",
		"{limits: {ratio: 0.25}}":           "5:26: server.limits.ratio: must be at least 0.5, found 0.25",
		"{limits: {worker: 1}}":             `server.limits: unknown field "worker", did you mean "workers"?`,
		"{keys: []}":                        "server.keys: must be a mapping, found a list",
		"{keys: {k: {}}}":                   "5:20: server.keys.k: the kind of key is missing, it is one of header, path",
		"{keys: {k: {header: a, path: 1}}}": `a key has one kind, found "path" after "header"; is the indentation right?`,
		"{keys: {k: {cookie: a}}}":          `unknown kind of key "cookie", there are header, path`,
		"{keys: {registered: {header: a}}}": `server: it gives the key function "registered", but the name is taken`,
		"{keys: {? '' : {header: a}}}":      "a key is missing",
		"{stores: [s, s]}":                  `server: it gives the store "s", but the name is taken`,
		"{hosts: {a: {limiter: slwo}}}":     `5:31: server.hosts.a.limiter: there is no limiter "slwo", did you mean "slow"?`,
		"{hosts: {a: {limiters: {x: slow, y: slo}}}}": `5:45: server.hosts.a.limiters.y: there is no limiter "slo", did you mean "slow"?`,
		"{hosts: {a: {weight: -1}}}":                  "5:30: server.hosts.a.weight: weight must be at least 0, got -1",
		"{hosts: {a: {limiter: free}}}":               "5:31: server.hosts.a.limiter: limiter must limit something",
		"{default: a}":                                `5:19: server.default: there is no "a" in server.hosts, which is empty`,
		"{hosts: {abc: {}}, order: [abc, abd]}":       `5:41: server.order[1]: there is no "abd" in server.hosts, did you mean "abc"?`,
		"{through: q}":                                `5:19: server.through: there is no pipeline "q", there is only p`,
	} {
		_, err := reload.Parse("f", []byte(rest+"server: "+text+"\n"), k)
		if want == "" {
			assert.NoError(t, err, text)
		} else if assert.Error(t, err, text) {
			wrong, ok := errors.AsType[*reload.FileError](err)
			require.True(t, ok)
			assert.Len(t, wrong.Problems, 1, err)
			assert.Contains(t, err.Error(), want, text)
		}
	}
}

// All problems of a section and of the rest of the file are reported at once.
func TestSection_AllProblems(t *testing.T) {
	_, err := reload.Parse("f", []byte(`server:
  size: 1
  hosts: {a: {limiter: slwo}, b: {limiter: free}}
  default: c
  keys: {user: {header: 1}, tenant: {header: a}}
limiters:
  slow: {partitioned: {key: usr, each: {concurrency: {permit_limit: 0}}}}
  by-tenant: {partitioned: {key: tenent, each: {concurrency: {permit_limit: 1}}}}
  free: {unlimited: {}}
pipelines:
  server: {strategies: [retry: {handle: nevre}]}
`), sections(nil))
	assert.EqualError(t, err, `f:2:9: server.size: must be at least 2, found 1
f:3:24: server.hosts.a.limiter: there is no limiter "slwo", did you mean "slow"?
f:4:12: server.default: there is no "c" in server.hosts, there are a, b
f:5:25: server.keys.user.header: must be text, found the number 1; write "1", with the quotes
f:7:29: limiters.slow.partitioned.key: there is no key function "usr", did you mean "user"?
f:7:69: limiters.slow.partitioned.each.concurrency.permit_limit: permit_limit must be at least 1, got 0
f:8:34: limiters.by-tenant.partitioned.key: there is no key function "tenent", did you mean "tenant"?
f:11:41: pipelines.server.strategies[0].retry.handle: there is no handle function "nevre", did you mean "never"?`)
}

func TestSection_PipelineNames(t *testing.T) {
	k := sections(limiting)
	_, err := reload.Parse("f", []byte("server: {}\npipelines: {server: {strategies: []}}"), k)
	assert.EqualError(t, err, "f:2:13: pipelines.server: the pipeline of this name is that of server; give this one another name")

	long := strings.Repeat("x", 257)
	names := func(all ...string) reload.Section[struct{}] {
		return reload.Section[struct{}]{Pipelines: func(struct{}) map[string]func(b *reload.SectionBuilder) error {
			builds := make(map[string]func(b *reload.SectionBuilder) error)
			for _, name := range all {
				builds[name] = func(*reload.SectionBuilder) error { return nil }
			}
			return builds
		}}
	}
	reload.RegisterSection(k, "other", names("server", "", long))
	_, err = reload.Parse("f", []byte("server: {}\nother: {}\n"), k)
	assert.ErrorContains(t, err, "f:2:1: other: it defines the pipeline server, like server")
	assert.ErrorContains(t, err, `f:2:1: other: it defines a pipeline with the name "", which must have from 1 to 256 bytes`)
	assert.ErrorContains(t, err, `which must have from 1 to 256 bytes`)
}

func TestRegisterSection_Refused(t *testing.T) {
	type bad struct {
		A int `reload:"fixd"`
	}
	type elements struct {
		A []struct {
			B int `yaml:"b" reload:"fixed"`
		} `yaml:"a"`
	}
	type number struct {
		A int `reload:"limiter"`
	}
	type nowhere struct {
		A string `reload:"in=b"`
		B string
	}
	type least struct {
		A int `reload:"least=x"`
	}
	k := reload.NewKinds()
	reload.RegisterSection(k, "limiters", reload.Section[struct{}]{})
	reload.RegisterSection(k, "a b", reload.Section[struct{}]{})
	reload.RegisterSection(k, "twice", reload.Section[struct{}]{})
	reload.RegisterSection(k, "twice", reload.Section[struct{}]{})
	reload.RegisterSection(k, "number", reload.Section[int]{})
	reload.RegisterSection(k, "channel", reload.Section[struct{ C chan int }]{})
	reload.RegisterSection(k, "bad", reload.Section[bad]{})
	reload.RegisterSection(k, "elements", reload.Section[elements]{})
	reload.RegisterSection(k, "numbers", reload.Section[number]{})
	reload.RegisterSection(k, "nowhere", reload.Section[nowhere]{})
	reload.RegisterSection(k, "least", reload.Section[least]{})
	reload.RegisterStrategy(k, "strategy", func(*registry.Builder, server) (pipeline.Strategy, error) { return nil, nil })
	_, err := reload.Parse("f", nil, k)
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	for _, want := range []string{
		`section "limiters": the name is taken`,
		`section "a b": the name must have only letters, digits, _ and -`,
		`section "twice": the name is taken`,
		`section "number": the options must be a struct, not int`,
		`section "channel": field C: chan int cannot be written in a file`,
		`section "bad": field A: the tag reload cannot have "fixd"`,
		`section "elements": field A: field B: what is in a list, a map or a pointer cannot be fixed, only all of it`,
		`section "numbers": field A: only texts can be names`,
		`section "nowhere": field A: the section has no map b`,
		`section "least": field A: the tag reload cannot have "least=x"`,
		`strategy kind "strategy": field Listen: the tag reload has what only a section can have`,
	} {
		assert.ErrorContains(t, err, want)
	}
}

func TestSection_Required(t *testing.T) {
	k := reload.NewKinds()
	reload.RegisterSection(k, "server", reload.Section[server]{Required: true})
	_, err := reload.Parse("f", []byte("allow_empty: true"), k)
	assert.EqualError(t, err, "f:1:1: server is missing")
	_, err = reload.Parse("f", []byte("server: {}"), k)
	assert.ErrorContains(t, err, "the file has no pipelines; if that is meant, add allow_empty: true", "the section defines none")
}

// What does not mean another thing is not built again, and what does is, with all that depends on it.
func TestSection_Change(t *testing.T) {
	const file = `server: {hosts: {a: {limiter: chained}}, keys: {user: {header: a}, tenant: {header: b}}, stores: [s]}
limiters:
  slow: {concurrency: {permit_limit: 1}}
  chained: {chain: [slow]}
  users: {partitioned: {key: user, each: {concurrency: {permit_limit: 1}}}}
  stored: {concurrency: {permit_limit: 1}, store: s}
pipelines:
  plain: {strategies: [timeout: {timeout: 1s}]}
  per-user: {strategies: [rate_limiter: {limiter: users}]}
  own: {strategies: [rate_limiter: {partitioned: {key: tenant, each: {concurrency: {permit_limit: 1}}}}]}
`
	k := sections(limiting)
	first := parse(t, file, k)
	assert.Equal(t, []string{"own", "per-user", "plain", "server"}, defined(first.Change(nil)))
	for name, c := range map[string]struct {
		old, new        string
		define, removed []string
	}{
		"nothing":               {},
		"a comment":             {old: "server:", new: "# here\nserver:"},
		"another limiter":       {old: "users: {part", new: "unused: {unlimited: {}}\n  users: {part"},
		"the limiter":           {old: "slow: {concurrency: {permit_limit: 1}", new: "slow: {concurrency: {permit_limit: 2}", define: []string{"server"}},
		"the section":           {old: "server: {", new: "server: {size: 4, ", define: []string{"server"}},
		"what a key is made of": {old: "header: a", new: "header: c", define: []string{"per-user", "server"}},
		"a key in a strategy":   {old: "header: b", new: "header: c", define: []string{"own", "server"}},
		"a pipeline":            {old: "timeout: 1s", new: "timeout: 2s", define: []string{"plain"}},
		"no section":            {old: file, new: "pipelines: {plain: {strategies: [timeout: {timeout: 1s}]}}", removed: []string{"per-user", "own", "server"}},
	} {
		c2 := parse(t, strings.Replace(file, c.old, c.new, 1), k).Change(first)
		assert.Equal(t, c.define, defined(c2), name)
		assert.Equal(t, c.removed, c2.Remove, name)
	}
	assert.Len(t, defined(parse(t, file, sections(limiting)).Change(first)), 4, "other functions")
}

func TestSectionBuilder(t *testing.T) {
	const file = `server: {hosts: {a: {limiter: LIMITER}}, keys: {user: {header: a}}, through: p}
limiters:
  slow: {concurrency: {permit_limit: 1}}
  users: {partitioned: {key: user, each: {concurrency: {permit_limit: 1}}}}
  both: {chain: [slow, users]}
pipelines: {p: {strategies: []}}
`
	build := func(limiter string, do func(b *reload.SectionBuilder) error) error {
		f := parse(t, strings.Replace(file, "LIMITER", limiter, 1), sections(func(b *reload.SectionBuilder, _ server) error { return do(b) }))
		return newRegistry(t).Apply(t.Context(), f.Change(nil))
	}
	require.NoError(t, build("slow", func(b *reload.SectionBuilder) error {
		_, err := b.Partitioned("slow")
		assert.EqualError(t, err, `limiter "slow": it is not partitioned`)
		_, err = b.Limiter("users")
		assert.EqualError(t, err, `the section server does not name the limiter "users" in a field with the tag reload:"limiter"`)
		p, err := b.Pipeline("p")
		require.NoError(t, err)
		b.Add(pipeline.Embed(p))
		info, ok := b.File.Limiter("users")
		assert.True(t, ok)
		assert.Equal(t, "user", info.Key)
		return nil
	}))
	require.NoError(t, build("users", func(b *reload.SectionBuilder) error {
		p, err := b.Partitioned("users")
		require.NoError(t, err)
		lease, err := p.TryAcquire(t.Context(), t.Context(), 1)
		require.NoError(t, err)
		assert.True(t, lease.Acquired())
		lease.Release()
		return nil
	}))
	require.NoError(t, build("both", func(b *reload.SectionBuilder) error {
		_, err := b.Limiter("both")
		return err
	}))
	require.ErrorContains(t, newRegistry(t).Apply(t.Context(), parse(t, strings.NewReplacer("LIMITER", "users", "header: a", "header: broken").Replace(file),
		sections(limiting)).Change(nil)), `weir.yaml:1:1: server: limiter "users": the key function "user": transient`)

	k := reload.NewKinds()
	reload.RegisterSection(k, "server", reload.Section[struct{}]{Pipelines: func(struct{}) map[string]func(b *reload.SectionBuilder) error {
		return map[string]func(b *reload.SectionBuilder) error{"server": nil}
	}})
	require.ErrorContains(t, newRegistry(t).Apply(t.Context(), parse(t, "server: {}", k).Change(nil)), "its build function is nil")
}

// A section can charge the limiters of its file: alone, in a chain, and by key.
func TestSectionBuilder_LimitersCanBeCharged(t *testing.T) {
	const file = `server: {hosts: {a: {limiter: LIMITER}}, keys: {user: {header: a}}, through: p}
limiters:
  quota: {fixed_window: {permit_limit: 10, window: 1h}}
  users: {partitioned: {key: user, each: {token_bucket: {token_limit: 5, tokens_per_period: 1, replenishment_period: 1h}}}}
  slow: {partitioned: {key: user, each: {concurrency: {permit_limit: 1}}}}
  both: {chain: [quota, users]}
pipelines: {p: {strategies: []}}
`
	for name, want := range map[string]int64{"quota": 3, "users": -2, "both": -2} {
		f := parse(t, strings.Replace(file, "LIMITER", name, 1), sections(func(b *reload.SectionBuilder, _ server) error {
			l, err := b.Limiter(name)
			require.NoError(t, err)
			level, err := l.(limiter.Charger).Charge(t.Context(), 7)
			require.NoError(t, err)
			assert.Equal(t, want, level.Remaining, name)
			if p, err := b.Partitioned(name); err == nil {
				level, err := p.(limiter.PartitionedCharger[context.Context]).Charge(t.Context(), t.Context(), 0)
				require.NoError(t, err)
				assert.Equal(t, want, level.Remaining, name)
			}
			return nil
		}))
		require.NoError(t, newRegistry(t).Apply(t.Context(), f.Change(nil)))
	}
	f := parse(t, strings.Replace(file, "LIMITER", "slow", 1), sections(func(b *reload.SectionBuilder, _ server) error {
		l, err := b.Limiter("slow")
		require.NoError(t, err)
		_, err = l.(limiter.Charger).Charge(t.Context(), 1)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		return nil
	}))
	require.NoError(t, newRegistry(t).Apply(t.Context(), f.Change(nil)))
}

// Two files in one registry can give the same name to key functions that have the same code and are not the same.
func TestSection_KeysOfTwoFiles(t *testing.T) {
	const file = "server: {keys: {user: {header: HEADER}}}\nlimiters: {users: {partitioned: {key: user, each: {concurrency: {permit_limit: 1}}}}}\npipelines: {NAME: {strategies: [rate_limiter: {limiter: users}]}}\n"
	r, k := newRegistry(t), sections(nil)
	apply := func(name, header string) error {
		return r.Apply(t.Context(), parse(t, strings.NewReplacer("NAME", name, "HEADER", header).Replace(file), k).Change(nil))
	}
	require.NoError(t, apply("a", "x"))
	require.NoError(t, apply("b", "x"))
	require.ErrorIs(t, apply("c", "y"), registry.ErrLimiterConflict)
}

func TestFile_Infos(t *testing.T) {
	f := parse(t, `server: {keys: {user: {header: a}}, stores: [s]}
limiters:
  slow: {concurrency: {permit_limit: 1}}
  users: {partitioned: {key: user, each: {concurrency: {permit_limit: 2}}}, store: s}
  both: {chain: [slow, users]}
pipelines:
  p: {strategies: [pipeline: {name: q}, timeout: {timeout: 1s, name: t}, rate_limiter: {unlimited: {}}, rate_limiter: {limiter: both, name: r}]}
  q: {strategies: []}
`, sections(nil))
	all := slices.Collect(f.AllLimiters())
	require.Len(t, all, 4)
	assert.Equal(t, []string{"slow", "users", "both", "p/RateLimiter"}, []string{all[0].Name, all[1].Name, all[2].Name, all[3].Name})
	assert.Equal(t, []string{"slow", "users"}, all[2].Members)
	assert.Equal(t, "s", all[1].Store)
	assert.Equal(t, "concurrency", all[1].Kind)
	_, ok := f.Limiter("p/RateLimiter")
	assert.False(t, ok)
	assert.Equal(t, "concurrency limiter: 1 at once; no queue", f.ExplainLimiter("slow"))
	assert.Empty(t, f.ExplainLimiter("none"))
	assert.Equal(t, []reload.StrategyInfo{
		{Kind: "pipeline", Pipeline: "q"},
		{Kind: "timeout", Name: "t"},
		{Kind: "rate_limiter", Name: "RateLimiter", Limiter: all[3]},
		{Kind: "rate_limiter", Name: "r", Limiter: all[2]},
	}, f.Strategies("p"))
	assert.Empty(t, f.Strategies("none"))
	_, ok = reload.SectionOf[host](f, "server")
	assert.False(t, ok, "another type")
	_, ok = reload.SectionOf[server](f, "servers")
	assert.False(t, ok)
	for range f.AllLimiters() {
		break
	}
}

func TestSection_Explain(t *testing.T) {
	f := parse(t, "server: {size: 3, idle: off, hosts: {a: {limiter: slow}}}\nlimiters: {slow: {concurrency: {permit_limit: 1}}, free: {unlimited: {}}}\n"+
		"pipelines: {p: {strategies: [rate_limiter: {limiter: slow}]}}", sections(limiting))
	var b bytes.Buffer
	require.NoError(t, f.Explain(&b))
	assert.Equal(t, `server
  listen: :80
  idle: off
  size: 3
  hosts: map[a:{slow map[] 0}]
p
  1. each execution: rate_limiter with limiter: slow, shared with server (concurrency limiter: 1 at once; no queue)
limiter free is used by no pipeline
`, b.String())
	b.Reset()
	require.NoError(t, f.Explain(&b, "server"))
	assert.Equal(t, 5, strings.Count(b.String(), "\n"))
	assert.ErrorContains(t, f.Explain(&b, "servr"), `did you mean "server"?`)

	k := reload.NewKinds()
	reload.RegisterSection(k, "server", reload.Section[server]{Explain: func(f *reload.File, s server) string {
		return fmt.Sprintf("%d limiters\n\x1b[2Jsize %d", len(f.Limiters()), s.Size)
	}})
	b.Reset()
	require.NoError(t, parse(t, "server: {size: 3}\nallow_empty: true\n", k).Explain(&b))
	assert.Equal(t, "server\n  0 limiters\n  \\x1b[2Jsize 3\n", b.String(), "a terminal is not told to do anything")
}

func TestSection_Schema(t *testing.T) {
	k := sections(limiting)
	schema, err := k.Schema()
	require.NoError(t, err)
	for text, valid := range map[string]bool{
		"server: {}": true,
		"server: {listen: ':81', idle: off, size: 8, keys: {k: {path: 1}}, hosts: {a: {limiter: slow}}, order: [a]}": true,
		"server: {idle: 0}":                         false,
		"server: {size: 1}":                         false,
		"server: {size: 9}":                         false,
		"server: {keys: {k: {}}}":                   false,
		"server: {keys: {k: {header: a, path: 1}}}": false,
		"server: {hosts: {a: {limit: slow}}}":       false,
		"servers: {}":                               false,
	} {
		if err := checkSchema(t, schema, []byte(text)); valid {
			assert.NoError(t, err, text)
		} else {
			assert.Error(t, err, text)
		}
	}
	assert.Contains(t, string(schema), `"description": "Where to listen. A change needs a restart."`)
	assert.Contains(t, string(schema), `"description": "What is served."`)
}

// AcceptUnknown accepts sections of a program that it does not know, unless the file is for this program.
func TestSection_AcceptUnknown(t *testing.T) {
	k := reload.NewKinds()
	k.AcceptUnknown()
	reload.RegisterSection(k, "server", reload.Section[server]{Complete: true})
	_, err := reload.Parse("f", []byte("mail: {}\n"), k)
	require.NoError(t, err)
	_, err = reload.Parse("f", []byte("servr: {}\n"), k)
	require.ErrorContains(t, err, `unknown field "servr", did you mean "server"?`)
	_, err = reload.Parse("f", []byte("server: {}\nmail: {}\npipelines: {p: {strategies: [own: {}]}}\n"), k)
	require.ErrorContains(t, err, `unknown field "mail"`)
	require.ErrorContains(t, err, `unknown kind of strategy "own"`)
	f := parse(t, "x-a: {}\nmail: {}\n", k)
	require.NoError(t, f.Explain(&bytes.Buffer{}))
	_, err = reload.Parse("f", []byte("x-a: {}\n"), k)
	require.ErrorContains(t, err, "the file has no pipelines")
}

// follows is a Watcher of a file with a section.
func follows(t *testing.T, file string, o *reload.Options) *watched {
	w := &watched{registry: registry.New(nil), path: filepath.Join(t.TempDir(), "weir.yaml")}
	w.write(t, file)
	o.Logger, o.Interval, o.Settle = slog.New(slog.NewTextHandler(&w.log, nil)), -1, time.Millisecond
	var err error
	w.watcher, err = reload.Start(t.Context(), w.registry, w.path, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		w.watcher.Stop()
		assert.NoError(t, w.registry.Close(context.Background()))
	})
	return w
}

func TestSection_Fixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sections(limiting)
		w := follows(t, "server: {size: 3}\nallow_empty: true\n", &reload.Options{Kinds: k})
		load := func(text string) error {
			w.write(t, text)
			return w.watcher.Reload(t.Context())
		}
		const cannot = "cannot change while the program runs; restart it with this file, or undo the change"
		require.NoError(t, load("server: {size: 4, listen: ':80', idle: 120s}\n"), "the defaults, as they can be written")
		err := load("server:\n  idle: off\n  limits: {workers: 2}\n  listen: ':81'\n")
		require.Error(t, err)
		assert.Equal(t, w.path+":2:3: server.idle: "+cannot+"\n"+w.path+":3:12: server.limits.workers: "+cannot+"\n"+w.path+":4:3: server.listen: "+cannot, err.Error())
		assert.Contains(t, w.log.String(), "configuration refused, what was in force stays")
		require.NoError(t, load("allow_empty: true\n"), "no section means the defaults")
		require.ErrorContains(t, load("server: {listen: ':81'}\n"), "server.listen: "+cannot)
		require.NoError(t, load("server: {listen: ':80'}\n"))
	})
}

// InForce is told of each file after its pipelines have changed, and of nothing else.
func TestOptions_InForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		var r *registry.Registry
		k := sections(limiting)
		w := follows(t, "server: {size: 3}\n", &reload.Options{Kinds: k, InForce: func(f *reload.File) {
			s, ok := reload.SectionOf[server](f, "server")
			assert.True(t, ok)
			if sizes = append(sizes, s.Size); r != nil {
				p, err := r.Get("server")
				assert.NoError(t, err)
				assert.Equal(t, s.Hosts["a"].Limiter == "", len(p.Describe().Strategies) == 0, "its pipeline is in force")
			}
			if s.Size == 5 {
				panic("ouch")
			}
		}})
		r = w.registry
		load := func(text string) error {
			w.write(t, text)
			return w.watcher.Reload(t.Context())
		}
		assert.Equal(t, []int{3}, sizes, "before Start returns")
		require.NoError(t, load("# the same\nserver: {size: 3}\n"))
		require.Error(t, load("server: {size: 1}\n"))
		require.NoError(t, load("server: {size: 5}\n"), "the panic of InForce does no harm")
		require.NoError(t, load("server: {size: 6, hosts: {a: {limiter: none}}}\nlimiters: {none: {concurrency: {permit_limit: 1}}}\n"+
			"pipelines: {p: {strategies: [rate_limiter: {limiter: none}]}}\n"))
		assert.Equal(t, []int{3, 3, 5, 6}, sizes)
		assert.Equal(t, []string{"p", "server"}, w.watcher.Status().Pipelines)
	})
}

// Pipelines of a section are removed with it, and belong to the Watcher.
func TestSection_Watcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follows(t, "server: {}\n", &reload.Options{Kinds: sections(limiting)})
		p, err := w.registry.Get("server")
		require.NoError(t, err)
		w.write(t, "pipelines: {p: {strategies: []}}\n")
		require.NoError(t, w.watcher.Reload(t.Context()))
		require.ErrorIs(t, try(p), registry.ErrRemoved)
		require.NoError(t, w.registry.Define("server", func(*registry.Builder) error { return nil }))
		w.write(t, "server: {}\n")
		require.ErrorContains(t, w.watcher.Reload(t.Context()), "pipelines of the file are defined elsewhere already: server")
	})
}
