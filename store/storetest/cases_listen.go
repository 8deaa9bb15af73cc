package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// A listening is a running call of Listen.
type listening struct {
	notices    chan backend.Notice
	ended      chan error
	stop       context.CancelFunc
	readies    atomic.Int32 // calls of ready
	noticing   atomic.Int32 // calls of notice that are running
	concurrent atomic.Bool  // two of them ran at once
}

// listen calls Listen, and returns when it is ready. onNotice is called for each notice before it is queued.
func (p *probe) listen(b backend.Backend, onNotice func()) *listening {
	ctx, cancel := context.WithCancel(p.ctx)
	l := &listening{notices: make(chan backend.Notice, 10_000), ended: make(chan error, 1), stop: cancel}
	ready := make(chan struct{})
	isReady := sync.OnceFunc(func() { close(ready) })
	go func() {
		l.ended <- b.Listen(ctx, func() { l.readies.Add(1); isReady() }, func(n backend.Notice) {
			if l.noticing.Add(1) > 1 {
				l.concurrent.Store(true)
			}
			onNotice()
			l.notices <- n
			l.noticing.Add(-1)
		})
	}()
	await(p, ready, l.ended, "Listen is ready")
	return l
}

func atOnce() {}

// await returns what arrives on c. It ends the case if Listen ends before, or nothing arrives in time.
func await[T any](p *probe, c <-chan T, ended <-chan error, want string) (v T) {
	select {
	case v = <-c:
	case err := <-ended:
		p.fail("Listen goes on", fmt.Sprintf("error %v", err))
	case <-time.After(p.patience):
		p.fail(want, fmt.Sprintf("nothing of that in %v", p.patience))
	}
	return v
}

// hears waits for a notice. It can come twice, and others can come before it.
func (p *probe) hears(l *listening, want backend.Notice, why string) {
	for await(p, l.notices, l.ended, fmt.Sprintf("there is a notice %+v: %s", want, why)) != want {
	}
}

// ends stops a Listen, which must return.
func (p *probe) ends(l *listening) {
	l.stop()
	err := await(p, l.ended, nil, "Listen ends when its context does")
	p.check(err == nil || errors.Is(err, context.Canceled), "Listen ends with nothing, or with the context's error", err)
	p.check(l.readies.Load() == 1, "ready is called once", l.readies.Load())
	p.check(!l.concurrent.Load(), "notice is called from one goroutine", "two calls at once")
}

var listenCases = []testCase{
	{name: "all listeners get a notice of a new definition", when: Subject.listens, run: func(p *probe) {
		other := p.another()
		mine, theirs := p.listen(p.b, atOnce), p.listen(other, atOnce)
		first := p.newDefinition(slowLimits(5))
		p.defines(p.b, 0, first, true, "there is none")
		p.hears(mine, backend.Notice{Name: p.name}, "it was defined by the same instance")
		p.hears(theirs, backend.Notice{Name: p.name}, "it was defined by another instance")
		p.defines(other, first.Version, newer(first, nil), true, "the first is in force")
		p.hears(mine, backend.Notice{Name: p.name}, "it was defined by another instance")
		p.hears(theirs, backend.Notice{Name: p.name}, "it was defined by the same instance")
		p.ends(mine)
		p.ends(theirs)
	}},
	{name: "all listeners get a notice of a release that a caller waits for", when: Subject.listens, run: func(p *probe) {
		other := p.another()
		mine, theirs := p.listen(p.b, atOnce), p.listen(other, atOnce)
		d := p.define(concurrency(1))
		for i, key := range []string{"", "k", "k:l"} {
			r := p.granted(leaseRequest(d, key, fmt.Sprint(i), 1, time.Minute), 1, "nothing was held")
			p.rejected(waiting(d, key), 1, "it is held")
			p.releases([]backend.Backend{p.b, other}[i%2], sameLease(r))
			for _, l := range []*listening{mine, theirs} {
				p.hears(l, backend.Notice{Name: p.name, Key: key, Released: true}, "a permit was released")
			}
		}
		p.ends(mine)
		p.ends(theirs)
	}},
	{name: "notices can have any name and key", when: Subject.listens, run: func(p *probe) {
		l := p.listen(p.another(), atOnce)
		for i, name := range oddNames() {
			d := p.newDefinition(concurrency(1))
			d.Name = p.name + name
			r := p.granted(leaseRequest(d, "k", fmt.Sprint(i), 1, time.Minute), 1, "nothing was held")
			p.rejected(waiting(d, "k"), 1, "it is held")
			p.released(r)
			p.hears(l, backend.Notice{Name: d.Name, Key: "k", Released: true}, "a permit was released")
			p.defines(p.b, 0, d, true, "there is none")
			p.hears(l, backend.Notice{Name: d.Name}, "it was defined")
		}
		d := p.define(concurrency(1))
		for i, key := range oddKeys() {
			r := p.granted(leaseRequest(d, key, fmt.Sprint(i), 1, time.Minute), 1, "nothing was held")
			p.rejected(waiting(d, key), 1, "it is held")
			p.released(r)
			p.hears(l, backend.Notice{Name: d.Name, Key: key, Released: true}, "a permit was released")
		}
		p.ends(l)
	}},
	{name: "Listen can be called again, and no call waits for a slow listener", when: Subject.listens, run: func(p *probe) {
		goOn := make(chan struct{})
		slow := p.listen(p.b, func() { <-goOn })
		d, version := p.newDefinition(slowLimits(5)), int64(0)
		for range 3 {
			l := p.listen(p.b, atOnce)
			for range 20 {
				d = newer(d, nil)
				p.defines(p.b, version, d, true, "the one before is in force")
				version = d.Version
			}
			p.hears(l, backend.Notice{Name: p.name}, "it was defined")
			p.ends(l)
		}
		close(goOn)
		p.ends(slow)
	}},
	{name: "a Backend that cannot listen returns errors.ErrUnsupported", when: func(s Subject) bool { return s.NoListen }, run: func(p *probe) {
		err := p.b.Listen(p.ctx, func() { p.note("Listen is never ready", "ready was called") }, func(backend.Notice) {})
		p.check(errors.Is(err, errors.ErrUnsupported), "Listen returns errors.ErrUnsupported", err)
	}},
}
