package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// methods returns a call of each method that makes a round trip, except Listen. Each call has one request.
func (p *probe) methods(d *backend.Definition) map[string]func(ctx context.Context) error {
	oneLease := func() []*backend.LeaseRequest {
		held := newer(d, func(d *backend.Definition) { d.Schedule = concurrency(5) })
		return []*backend.LeaseRequest{leaseRequest(held, "h", "a", 1, time.Minute)}
	}
	return map[string]func(ctx context.Context) error{
		"Decide": func(ctx context.Context) error {
			return p.b.Decide(ctx, []*backend.Batch{{Definition: d, Key: "k", Requests: []backend.Request{take(1)}}})
		},
		"Replace": func(ctx context.Context) error {
			full := d.Stored(d.Full(d.Anchor))
			_, err := replaceOne(ctx, p.b, d, "k", full, full)
			return err
		},
		"Load": func(ctx context.Context) error {
			_, _, err := p.b.Load(ctx, p.name)
			return err
		},
		"Define": func(ctx context.Context) error {
			other := *d
			other.Name += "-other"
			_, err := p.b.Define(ctx, 0, &other)
			return err
		},
		"Acquire": func(ctx context.Context) error { return p.b.Acquire(ctx, oneLease()) },
		"Renew":   func(ctx context.Context) error { return p.b.Renew(ctx, oneLease()) },
		"Release": func(ctx context.Context) error { return p.b.Release(ctx, oneLease()) },
	}
}

var contextCases = []testCase{
	{name: "a context that has ended ends every call", run: func(p *probe) {
		canceled, cancel := context.WithCancel(p.ctx)
		cancel()
		late, cancel := context.WithDeadline(p.ctx, time.Now().Add(-time.Second))
		defer cancel()
		for name, call := range p.methods(p.define(slowLimits(5))) {
			err := call(canceled)
			p.check(errors.Is(err, context.Canceled), name+" returns context.Canceled", fmt.Sprintf("error %v", err))
			err = call(late)
			p.check(errors.Is(err, context.DeadlineExceeded), name+" returns context.DeadlineExceeded", fmt.Sprintf("error %v", err))
		}
	}},
	{name: "a context that has ended ends Listen", when: Subject.listens, run: func(p *probe) {
		canceled, cancel := context.WithCancel(p.ctx)
		cancel()
		ended := make(chan error, 1)
		go func() { ended <- p.b.Listen(canceled, func() {}, func(backend.Notice) {}) }()
		p.check(await(p, ended, nil, "Listen ends") != nil, "Listen returns an error", nil)
	}},
	{name: "calls that are cancelled at any moment leave a Backend usable", run: func(p *probe) {
		d := p.define(slowLimits(5))
		for _, call := range p.methods(d) {
			for i := range 10 {
				ctx, cancel := context.WithTimeout(p.ctx, time.Duration(i*i)*30*time.Microsecond)
				_ = call(ctx) // it may have been in time or not
				cancel()
			}
		}
		fresh := p.defineNamed("-fresh", slowLimits(5))
		for range 3 {
			p.takes(fresh, "", 1, 1, "the Backend is usable")
		}
	}},
}
