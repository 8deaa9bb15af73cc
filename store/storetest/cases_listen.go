package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// A listening is a running call of Listen.
type listening struct {
	notices chan backend.Notice
	ready   chan struct{}
	ended   chan error
	readies atomic.Int32
	at      atomic.Int32 // calls of notice that are running
	both    atomic.Bool  // two of them ran at once
	stop    context.CancelFunc
}

// listen calls Listen, and returns when it is ready.
func (p *probe) listen(b backend.Backend) *listening {
	ctx, cancel := context.WithCancel(p.ctx)
	l := &listening{notices: make(chan backend.Notice, 10_000), ready: make(chan struct{}), ended: make(chan error, 1), stop: cancel}
	go func() {
		l.ended <- b.Listen(ctx, func() {
			if l.readies.Add(1) == 1 {
				close(l.ready)
			}
		}, l.notice)
	}()
	select {
	case <-l.ready:
	case err := <-l.ended:
		cancel()
		p.fail("Listen goes on", fmt.Sprintf("error %v", err))
	case <-time.After(p.patience):
		cancel()
		p.fail("Listen is ready", fmt.Sprintf("nothing of that in %v", p.patience))
	}
	return l
}

func (l *listening) notice(n backend.Notice) {
	if l.at.Add(1) > 1 {
		l.both.Store(true)
	}
	l.notices <- n
	l.at.Add(-1)
}

// hears waits for a notice. It can come twice, and others can come before it.
func (p *probe) hears(l *listening, want backend.Notice, why string) {
	late := time.After(p.patience)
	for {
		select {
		case n := <-l.notices:
			if n == want {
				return
			}
		case err := <-l.ended:
			p.fail("Listen goes on", fmt.Sprintf("error %v", err))
		case <-late:
			p.fail(fmt.Sprintf("there is a notice %+v: %s", want, why), fmt.Sprintf("nothing of that in %v", p.patience))
		}
	}
}

// ends stops a Listen, which must return.
func (p *probe) ends(l *listening) {
	l.stop()
	select {
	case err := <-l.ended:
		p.check(err == nil || errors.Is(err, context.Canceled), "Listen ends with nothing, or with the context's error", err)
	case <-time.After(p.patience):
		p.fail("Listen ends when its context does", fmt.Sprintf("nothing of that in %v", p.patience))
	}
	p.check(l.readies.Load() == 1, "ready is called once", l.readies.Load())
	p.check(!l.both.Load(), "notice is called from one goroutine", "two calls at once")
}

var listenCases = []testCase{
	{
		name: "all listeners get a notice of a new definition", when: Subject.listens,
		run: func(p *probe) {
			other := p.another()
			mine, theirs := p.listen(p.b), p.listen(other)
			first := p.define(slowLimits(5))
			p.defines(p.b, 0, first, true, "there is none")
			p.hears(mine, backend.Notice{Name: p.name}, "it was defined by the same instance")
			p.hears(theirs, backend.Notice{Name: p.name}, "it was defined by another instance")
			p.defines(other, first.Version, newer(first, nil), true, "the first is in force")
			p.hears(mine, backend.Notice{Name: p.name}, "it was defined by another instance")
			p.hears(theirs, backend.Notice{Name: p.name}, "it was defined by the same instance")
			p.ends(mine)
			p.ends(theirs)
		},
	},
	{
		name: "all listeners get a notice of a release that a caller waits for", when: Subject.listens,
		run: func(p *probe) {
			other := p.another()
			mine, theirs := p.listen(p.b), p.listen(other)
			d := p.define(concurrency(1))
			for i, key := range []string{"", "k", "k:l"} {
				h := p.granted(leaseRequest(d, key, fmt.Sprint(i), 1, time.Minute), 1, "nothing was held")
				p.rejected(waiting(d, key), 1, "it is held")
				p.releases([]backend.Backend{p.b, other}[i%2], sameLease(h))
				for _, l := range []*listening{mine, theirs} {
					p.hears(l, backend.Notice{Name: p.name, Key: key, Released: true}, "a permit was released")
				}
			}
			p.ends(mine)
			p.ends(theirs)
		},
	},
	{
		name: "notices can have any name and key", when: Subject.listens,
		run: func(p *probe) {
			l := p.listen(p.another())
			for i, name := range oddNames() {
				d := p.define(concurrency(1))
				d.Name = p.name + name
				h := p.granted(leaseRequest(d, "k", fmt.Sprint(i), 1, time.Minute), 1, "nothing was held")
				p.rejected(waiting(d, "k"), 1, "it is held")
				p.released(h)
				p.hears(l, backend.Notice{Name: d.Name, Key: "k", Released: true}, "a permit was released")
				p.defines(p.b, 0, d, true, "there is none")
				p.hears(l, backend.Notice{Name: d.Name}, "it was defined")
			}
			for i, key := range oddKeys() {
				d := p.define(concurrency(1))
				h := p.granted(leaseRequest(d, key, fmt.Sprint(i), 1, time.Minute), 1, "nothing was held")
				p.rejected(waiting(d, key), 1, "it is held")
				p.released(h)
				p.hears(l, backend.Notice{Name: d.Name, Key: key, Released: true}, "a permit was released")
			}
			p.ends(l)
		},
	},
	{
		name: "Listen can be called again, and no call waits for a slow listener", when: Subject.listens,
		run: func(p *probe) {
			slow := make(chan struct{})
			ctx, cancel := context.WithCancel(p.ctx)
			ready, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				ended <- p.b.Listen(ctx, func() { close(ready) }, func(backend.Notice) { <-slow })
			}()
			select {
			case <-ready:
			case <-time.After(p.patience):
				p.note("Listen is ready", fmt.Sprintf("nothing of that in %v", p.patience))
			}
			d, version := p.define(slowLimits(5)), int64(0)
			for range 3 {
				l := p.listen(p.b)
				for range 20 {
					d = newer(d, nil)
					p.defines(p.b, version, d, true, "the one before is in force")
					version = d.Version
				}
				p.hears(l, backend.Notice{Name: p.name}, "it was defined")
				p.ends(l)
			}
			close(slow)
			cancel()
			p.check(<-ended != nil, "Listen returns an error", nil)
		},
	},
	{
		name: "a Backend that cannot listen returns errors.ErrUnsupported", when: func(s Subject) bool { return s.NoListen },
		run: func(p *probe) {
			err := p.b.Listen(p.ctx, func() { p.note("Listen is never ready", "ready was called") }, func(backend.Notice) {})
			p.check(errors.Is(err, errors.ErrUnsupported), "Listen returns errors.ErrUnsupported", err)
		},
	},
}
