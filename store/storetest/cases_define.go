package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// defines calls Define and expects the result want.
func (p *probe) defines(b backend.Backend, old int64, next *backend.Definition, want bool, why string) {
	done, err := b.Define(p.ctx, old, next)
	p.works("Define", err)
	p.check(done == want, fmt.Sprintf("Define of %+v after version %d answers %v: %s", *next, old, want, why), done)
}

func (p *probe) loads(b backend.Backend, name string) *backend.Definition {
	d, _, err := b.Load(p.ctx, name)
	p.works("Load", err)
	return d
}

// loaded expects that this definition is in force.
func (p *probe) loaded(b backend.Backend, want *backend.Definition) {
	d := p.loads(b, want.Name)
	p.check(d != nil && *d == *want, fmt.Sprintf("the definition is %+v", *want), d)
}

// outdated sends a request with the definition d. It expects that d is outdated by a definition with the version by. If
// by is 0, it expects that d decides.
func (p *probe) outdated(b backend.Backend, d *backend.Definition, key string, by int64, why string) {
	outcome, version := backend.Decided, by
	if d.Kind == rate.Concurrency {
		r := leaseRequest(d, key, fmt.Sprint("id", key), 1, time.Minute)
		p.works("Acquire", b.Acquire(p.ctx, []*backend.LeaseRequest{r}))
		outcome, version = r.Outcome, r.Version
	} else {
		// Backends can have a fast path for the first of the two.
		for _, requests := range [][]backend.Request{{take(1)}, {take(1), take(1)}} {
			batch := &backend.Batch{Definition: d, Key: key, Requests: requests, Granted: make([]int64, len(requests))}
			p.works("Decide", backend.Windowed(b).Decide(p.ctx, []*backend.Batch{batch}))
			if outcome = batch.Outcome; outcome == backend.OutdatedDefinition {
				version = batch.Version
			}
		}
	}
	if by == 0 {
		p.check(outcome == backend.Decided, "version "+fmt.Sprint(d.Version)+" decides: "+why, outcome)
		return
	}
	p.check(outcome == backend.OutdatedDefinition && version == by, fmt.Sprintf("version %d is outdated by %d: %s", d.Version, by, why), fmt.Sprint(outcome, version))
}

var defineCases = []testCase{
	{name: "a new name has no definition", run: func(p *probe) {
		d, now, err := p.b.Load(p.ctx, p.name)
		p.works("Load", err)
		p.check(d == nil, "there is no definition", d)
		p.check(now > 1_600_000_000_000_000, "the time is in microseconds since 1970", now)
	}},
	{name: "a definition is created once", run: func(p *probe) {
		d := p.newDefinition(slowLimits(5))
		p.defines(p.b, 0, d, true, "there is none")
		other := newer(d, func(d *backend.Definition) { d.Permits = 9 })
		p.defines(p.b, 0, other, false, "there is one")
		p.loaded(p.b, d)
		p.loaded(p.another(), d)
	}},
	{name: "a definition is replaced only if the one in force is known", run: func(p *probe) {
		first := p.newDefinition(slowLimits(5))
		p.defines(p.b, first.Version, first, false, "there is none that could be replaced")
		p.check(p.loads(p.b, p.name) == nil, "there is still none", "one")
		p.defines(p.b, 0, first, true, "there is none")
		second := newer(first, func(d *backend.Definition) { d.Permits = 6 })
		third := newer(second, func(d *backend.Definition) { d.Permits = 7 })
		p.defines(p.another(), first.Version, second, true, "the first is in force")
		p.defines(p.b, first.Version, third, false, "the second is in force")
		p.defines(p.b, third.Version, third, false, "the second is in force")
		p.loaded(p.b, second)
		p.defines(p.b, second.Version, third, true, "the second is in force")
		p.loaded(p.b, third)
	}},
	{name: "a definition is stored with all its fields", run: func(p *probe) {
		version := int64(0)
		for i, l := range append(append(extremes(), timedLimits(3)...), concurrency(7)) {
			d := p.newDefinition(l)
			d.Version = max(version+1, d.Version)
			d.Anchor = []int64{0, -1, d.Anchor, -backend.MaxPeriod, backend.MaxPeriod}[i%5]
			d.AnchorInForce = i%2 == 0
			d.Terms = []string{"", `{"by":"ann","reason":"a \"sale\" \u0000 für ☃","until":1}`, strings.Repeat("x", 16<<10)}[i%3]
			p.defines(p.b, version, d, true, "the one before is in force")
			p.loaded(p.b, d)
			version = d.Version
		}
	}},
	{name: "nothing is decided by an older definition once Define has returned", run: func(p *probe) {
		for i, l := range append(timedLimits(100), concurrency(100)) {
			old := p.newDefinition(l)
			old.Name = fmt.Sprint(p.name, i)
			p.defines(p.b, 0, old, true, "there is none")
			p.outdated(p.b, old, "used", 0, "it is in force")
			next := newer(old, func(d *backend.Definition) { d.Permits = 2 })
			p.defines(p.another(), old.Version, next, true, "the first is in force")
			for key := range fewer(300) {
				p.outdated(p.b, old, fmt.Sprint(key), next.Version, "the key has no state")
			}
			p.outdated(p.b, old, "", next.Version, "the key has no state")
			p.outdated(p.b, old, "used", next.Version, "the key has a state")
			p.outdated(p.b, next, "fresh", 0, "it is in force")
			p.outdated(p.b, newer(next, nil), "newer", 0, "the store has lost it")
		}
	}},
	{name: "only one of the concurrent calls of Define succeeds (ConcurrentSafe)", run: func(p *probe) {
		version := int64(0)
		for range 5 {
			var done [contenders]bool
			first := p.newDefinition(slowLimits(1))
			first.Version = max(first.Version, version+1)
			p.contend(func(i int, b backend.Backend) (err error) {
				next := *first
				next.Version += int64(i)
				next.Permits += int64(i)
				done[i], err = b.Define(p.ctx, version, &next)
				return err
			})
			in := p.loads(p.b, p.name)
			for i := range done {
				p.check(in != nil && done[i] == (in.Permits == int64(i)+1), "the call whose definition is in force, and no other, has returned true", fmt.Sprint(done, in))
			}
			version = in.Version
		}
	}},
}
