package storetest

import (
	"fmt"
	"sync"

	"github.com/weir-go/weir/store"
)

// defines expects of Define that it does, or does not.
func (p *probe) defines(b store.Backend, old int64, next *store.Definition, want bool, why string) {
	done, err := b.Define(p.ctx, old, next)
	p.works("Define", err)
	p.check(done == want, fmt.Sprintf("Define of %+v after version %d answers %v: %s", *next, old, want, why), done)
}

func (p *probe) loads(b store.Backend, name string) *store.Definition {
	d, _, err := b.Load(p.ctx, name)
	p.works("Load", err)
	return d
}

// loaded expects that this definition is in force.
func (p *probe) loaded(b store.Backend, want *store.Definition) {
	d := p.loads(b, want.Name)
	p.check(d != nil && *d == *want, fmt.Sprintf("the definition is %+v", *want), d)
}

var defineCases = []testCase{
	{
		name: "a name that nobody has defined has no definition",
		run: func(p *probe) {
			d, now, err := p.b.Load(p.ctx, p.name)
			p.works("Load", err)
			p.check(d == nil, "there is no definition", d)
			p.check(now > 1_600_000_000_000_000, "the time is in microseconds since 1970", now)
		},
	},
	{
		name: "a definition is created once",
		run: func(p *probe) {
			d := p.define(slowly(5))
			p.defines(p.b, 0, d, true, "there is none")
			other := newer(d, func(d *store.Definition) { d.Permits = 9 })
			p.defines(p.b, 0, other, false, "there is one")
			p.loaded(p.b, d)
			p.loaded(p.another(), d)
		},
	},
	{
		name: "a definition is replaced by who knows the one in force",
		run: func(p *probe) {
			first := p.define(slowly(5))
			p.defines(p.b, first.Version, first, false, "there is none that could be replaced")
			p.check(p.loads(p.b, p.name) == nil, "there is still none", "one")
			p.defines(p.b, 0, first, true, "there is none")
			second := newer(first, func(d *store.Definition) { d.Permits = 6 })
			third := newer(second, func(d *store.Definition) { d.Permits = 7 })
			p.defines(p.another(), first.Version, second, true, "the first is in force")
			p.defines(p.b, first.Version, third, false, "the second is in force")
			p.defines(p.b, third.Version, third, false, "the second is in force")
			p.loaded(p.b, second)
			p.defines(p.b, second.Version, third, true, "the second is in force")
			p.loaded(p.b, third)
		},
	},
	{
		name: "a definition is kept with all that it says",
		run: func(p *probe) {
			version := int64(0)
			for i, l := range append(append(extremes(), timed(3)...), concurrency(7)) {
				d := p.define(l)
				d.Version = max(version+1, d.Version)
				d.Anchor = []int64{0, -1, d.Anchor, -mostPeriod, mostPeriod}[i%5]
				d.Reached = i%2 == 0
				p.defines(p.b, version, d, true, "the one before is in force")
				p.loaded(p.b, d)
				version = d.Version
			}
		},
	},
	{
		name: "of many who define at once one does (ConcurrentSafe)",
		run: func(p *probe) {
			instances := []store.Backend{p.b, p.another()}
			version := int64(0)
			for range 5 {
				done := make([]bool, 8)
				errs := make([]error, 8)
				first := p.define(slowly(1))
				first.Version = max(first.Version, version+1)
				var all sync.WaitGroup
				for i := range done {
					all.Go(func() {
						next := *first
						next.Version += int64(i)
						next.Permits += int64(i)
						done[i], errs[i] = instances[i%2].Define(p.ctx, version, &next)
					})
				}
				all.Wait()
				in := p.loads(p.b, p.name)
				for i := range done {
					p.works("Define", errs[i])
					p.check(in != nil && done[i] == (in.Permits == int64(i)+1), "who defined it is who was told so", fmt.Sprint(done, in))
				}
				version = in.Version
			}
		},
	},
}
