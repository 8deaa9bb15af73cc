package storetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// usualPatience is how long a case waits for something that must happen. It is long, because a slow server must not fail
// a case.
const usualPatience = 20 * time.Second

// A testCase is one expectation.
type testCase struct {
	name string               // a sentence
	when func(s Subject) bool // nil: the case applies to every subject
	run  func(p *probe)
}

func (c testCase) appliesTo(s Subject) bool { return c.when == nil || c.when(s) }

// check runs the case and returns its failures.
func (c testCase) check(t testing.TB, s Subject) (failures []string) {
	p := newProbe(t, s)
	func() {
		defer p.end()
		defer func() {
			if r := recover(); r != nil && r != any(stopCase{}) {
				panic(r)
			}
		}()
		c.run(p)
	}()
	return p.failures
}

// A probe is what a case works with: a Backend, a model of the server, and methods for expectations. Only the case's
// goroutine uses it.
type probe struct {
	t        testing.TB
	s        Subject
	failures []string
	patience time.Duration

	ctx    context.Context
	cancel context.CancelFunc
	b      backend.Backend
	opened []backend.Backend
	name   string           // of the case's own limiter
	stored map[string]int64 // the version of each definition that the probe has stored, by name
	model  model
}

// A stopCase is the value of a panic that ends a case.
type stopCase struct{}

func newProbe(t testing.TB, s Subject) *probe {
	p := &probe{t: t, s: s, name: "storetest-" + rand.Text()[:12], stored: map[string]int64{}, model: model{}}
	p.patience = cmp.Or(s.patience, usualPatience)
	p.ctx, p.cancel = context.WithTimeout(context.Background(), 5*p.patience)
	p.b = p.another()
	return p
}

// another returns one more instance on the same server.
func (p *probe) another() backend.Backend {
	b := p.s.New(p.t)
	p.opened = append(p.opened, b)
	return b
}

func (p *probe) end() {
	p.cancel()
	for _, b := range p.opened {
		if err := b.Close(); err != nil {
			p.note("Close succeeds", err)
		}
	}
}

// note records a failure; the case continues.
func (p *probe) note(want string, got any) {
	p.failures = append(p.failures, fmt.Sprintf("expected that %s; got: %v", want, got))
}

// fail records a failure and ends the case.
func (p *probe) fail(want string, got any) {
	p.note(want, got)
	panic(stopCase{})
}

func (p *probe) check(ok bool, want string, got any) {
	if !ok {
		p.fail(want, got)
	}
}

func (p *probe) works(method string, err error) {
	if err != nil {
		p.fail(method+" succeeds", fmt.Sprintf("error %q", err))
	}
}

// now returns the server's time.
func (p *probe) now() int64 {
	_, now, err := p.b.Load(p.ctx, p.name)
	p.works("Load", err)
	return now
}

// eventually waits until ok returns true.
func (p *probe) eventually(want string, ok func() bool) {
	for end := time.Now().Add(p.patience); !ok(); time.Sleep(3 * time.Millisecond) { // so that the server's time passes
		if time.Now().After(end) {
			p.fail(want, fmt.Sprintf("nothing of that in %v", p.patience))
		}
	}
}

// define returns a definition of the case's limiter whose schedule starts now. It is stored, as every definition is before a
// Store decides by it.
func (p *probe) define(l rate.Schedule) *backend.Definition { return p.defineNamed("", l) }

// defineNamed is define for another limiter, whose name ends so.
func (p *probe) defineNamed(end string, l rate.Schedule) *backend.Definition {
	d := p.newDefinition(l)
	d.Name += end
	return p.store(d)
}

// newDefinition is define for a case that changes the definition, or stores it by itself.
func (p *probe) newDefinition(l rate.Schedule) *backend.Definition {
	now := p.now()
	return backend.NewDefinition(p.name, l, now)
}

// store stores d with a version later than that of the definition of the same name that it has stored before.
func (p *probe) store(d *backend.Definition) *backend.Definition {
	old := p.stored[d.Name]
	d.Version = max(d.Version, old+1)
	p.defines(p.b, old, d, true, "it follows the definition in force")
	p.stored[d.Name] = d.Version
	return d
}

// slowLimits are limits of which nothing comes back while a case runs.
func slowLimits(permits int64) rate.Schedule {
	return rate.Schedule{Kind: rate.FixedWindow, Permits: permits, Period: time.Hour.Microseconds()}
}

// newer returns a definition that follows d on the same schedule.
func newer(d *backend.Definition, change func(*backend.Definition)) *backend.Definition {
	next := *d
	next.Version++
	if change != nil {
		change(&next)
	}
	return &next
}

// decide has the case's Backend decide all batches, and checks each answer against the model.
func (p *probe) decide(batches ...*backend.Batch) {
	p.decideBy(p.b, batches...)
}

func (p *probe) decideBy(b backend.Backend, batches ...*backend.Batch) {
	sortBatches(batches)
	p.works("Decide", backend.Windowed(b).Decide(p.ctx, batches))
	for _, b := range batches {
		if wrong := p.model.check(b); wrong != "" {
			p.fail(fmt.Sprintf("key %q of %+v, asked for %+v, answers as Definition.Decide does", b.Key, *b.Definition, b.Requests), wrong)
		}
	}
}

func sortBatches(batches []*backend.Batch) {
	slices.SortFunc(batches, func(a, b *backend.Batch) int {
		return cmp.Or(cmp.Compare(a.Definition.Name, b.Definition.Name), cmp.Compare(a.Key, b.Key))
	})
}

// ask decides one batch.
func (p *probe) ask(d *backend.Definition, key string, requests ...backend.Request) *backend.Batch {
	b := batchOf(d, key, requests...)
	p.decide(b)
	return b
}

func batchOf(d *backend.Definition, key string, requests ...backend.Request) *backend.Batch {
	return &backend.Batch{Definition: d, Key: key, Requests: requests}
}

// takes asks for n permits and expects that want are granted; want can be [backend.Rejected].
func (p *probe) takes(d *backend.Definition, key string, n, want int64, why string) *backend.Batch {
	b := p.ask(d, key, take(n))
	p.check(b.Outcome == backend.Decided && b.Granted[0] == want, fmt.Sprintf("taking %d of %q answers %d: %s", n, key, want, why), describe(b))
	return b
}

func describe(b *backend.Batch) string {
	return fmt.Sprintf("outcome %d, granted %v, state %+v at %d, stored %+v", b.Outcome, b.Granted, b.State, b.Now, b.Stored)
}

func take(n int64) backend.Request { return backend.Request{Min: n, Max: n} }

func takeBlock(n int64) backend.Request { return backend.Request{Min: n, Max: n, Block: true} }

func upTo(n int64) backend.Request { return backend.Request{Min: 1, Max: n} }

func charge(n int64) backend.Request { return backend.Request{Op: backend.OpCharge, Max: n} }

func refund(n int64, m rate.Receipt) backend.Request {
	return backend.Request{Op: backend.OpRefund, Max: n, Receipt: m}
}

func returnBlock(n int64, m rate.Receipt) backend.Request {
	return backend.Request{Op: backend.OpReturnBlock, Max: n, Receipt: m}
}

func giveBack(n int64) backend.Request { return backend.Request{Op: backend.OpGiveBack, Max: n} }

// receiptOf returns the receipt of the last grant of a batch.
func receiptOf(b *backend.Batch) rate.Receipt { return b.Definition.Receipt(&b.State) }
