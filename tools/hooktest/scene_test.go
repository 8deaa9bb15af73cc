package hooktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

// A row drives one hook, or several that are the same code.
type row struct {
	hooks string // as discover names them, separated by spaces
	on    place
	drive func(x *scene) drill
}

// A drill is how a row uses its object.
type drill struct {
	do   func() // brings about that the hook is called, on this goroutine or another
	also func() // what another caller does with the same object; nil is do
	once bool   // do cannot be repeated
}

// A place is where a hook is called, and so what becomes of its panic.
type place int

const (
	caller place = iota // on the goroutine of do: a panic goes through
	caught              // on the goroutine of do, or one that it waits for; a panic becomes an error or is logged
	ours                // on a goroutine of weir: a panic is logged
)

// The modes are what a hook does.
const (
	panics   = "panics"
	leaves   = "leaves its goroutine"
	blocks   = "blocks"
	callsUs  = "calls back"
	stuckFor = time.Minute // of real time
)

var modes = []string{panics, leaves, blocks, callsUs}

var errBoom = errors.New("boom")

// A scene is one run of a row in one mode.
type scene struct {
	*testing.T
	mode    string
	armed   atomic.Bool // the next call of the hook does what the mode says
	hits    atomic.Int32
	release chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	again   func()
	checks  []func()
}

// hit is what the hook does. ctx is the context that it gets, if it gets one that ends with the call.
func (x *scene) hit(ctx ...context.Context) {
	if !x.armed.CompareAndSwap(true, false) {
		return
	}
	x.hits.Add(1)
	switch x.mode {
	case panics:
		panic("the hook panics")
	case leaves:
		runtime.Goexit()
	case callsUs:
		x.again()
	case blocks:
		if len(ctx) > 0 {
			select {
			case <-ctx[0].Done():
			case <-x.release:
			}
			return
		}
		<-x.release
	}
}

// context returns the context of a call: the first one is cancelled where the hook blocks.
func (x *scene) context() context.Context {
	if x.armed.Load() {
		return x.ctx
	}
	return context.Background()
}

// then adds a check that runs at the end.
func (x *scene) then(f func()) { x.checks = append(x.checks, f) }

// limiter returns a limiter that must be full at the end.
func (x *scene) limiter() *limiter.Concurrency {
	const permits = 4
	l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: permits, QueueLimit: 1}))
	x.then(func() {
		if s := l.Statistics(); s.AvailablePermits != permits || s.QueuedPermits != 0 {
			x.Errorf("permits are lost: %+v of %d", s, permits)
		}
		_ = l.Close()
	})
	return l
}

// pipeline makes a pipeline of strategies.
func (x *scene) pipeline(s ...pipeline.Strategy) *pipeline.Pipeline {
	return weir.Must(pipeline.New("p", s...))
}

// heard makes a pipeline of strategies with a listener.
func (x *scene) heard(l pipeline.Listener, s ...pipeline.Strategy) *pipeline.Pipeline {
	return weir.Must(pipeline.Config{Name: "p", Listener: l, Strategies: s}.Build())
}

// succeeds runs a pipeline of strategies whose callback succeeds.
func (x *scene) succeeds(s ...pipeline.Strategy) drill { return x.runs(x.pipeline(s...), nil) }

// fails runs a pipeline of strategies whose callback fails.
func (x *scene) fails(s ...pipeline.Strategy) drill { return x.runs(x.pipeline(s...), errBoom) }

func (x *scene) runs(p *pipeline.Pipeline, err error) drill {
	return drill{do: func() { _ = p.Execute(x.context(), func(context.Context) error { return err }) }}
}

// must is for what cannot fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// defaultLog is what slog.Default writes to.
type defaultLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *defaultLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *defaultLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// An outcome is what became of do.
type outcome struct {
	returned bool
	panicked any
}

func start(f func()) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() { done <- o }()
		defer func() {
			if p := recover(); p != nil {
				o.panicked = p
			}
		}()
		f()
		o.returned = true
	}()
	return done
}

// within reports whether done comes within an hour of the bubble's time.
func within(done <-chan outcome) (o outcome, ok bool) {
	select {
	case o = <-done:
		return o, true
	case <-time.After(time.Hour):
		return o, false
	}
}

// run runs the row in one mode.
func (r row) run(t *testing.T, mode string) {
	watchdog := time.AfterFunc(stuckFor, func() {
		stacks := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "%s %s: stuck\n%s", r.hooks, mode, stacks[:runtime.Stack(stacks, true)])
		os.Exit(2)
	})
	defer watchdog.Stop()
	was := slog.Default()
	log := &defaultLog{}
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Writer(log), nil)))
	defer slog.SetDefault(was)
	synctest.Test(t, func(t *testing.T) {
		x := &scene{T: t, mode: mode, release: make(chan struct{})}
		x.ctx, x.cancel = context.WithCancel(context.Background())
		defer x.cancel()
		d := r.drive(x)
		if d.also == nil {
			d.also = d.do
		}
		x.again = d.also
		x.armed.Store(true)
		r.check(x, d, log)
		for _, f := range x.checks {
			f()
		}
	})
}

func (r row) check(x *scene, d drill, log *defaultLog) {
	done := start(d.do)
	for n := 0; x.hits.Load() == 0; n++ {
		if n == 3 {
			x.Fatal("the hook is not called")
		}
		time.Sleep(time.Duration(n) * 10 * time.Minute)
		synctest.Wait()
	}
	if x.mode == blocks {
		if _, ok := within(start(d.also)); !ok {
			x.Error("another caller waits for the hook")
		}
		x.cancel()
	}
	o, ok := within(done)
	close(x.release)
	if !ok && x.mode == blocks {
		o, ok = within(done)
	}
	if !ok {
		x.Fatal("the call does not return")
	}
	synctest.Wait()
	reported := strings.Contains(log.String(), "the hook panics")
	switch {
	case x.mode != panics:
	case r.on == caller && o.panicked == nil:
		x.Error("the panic did not go through to the caller")
	case r.on != caller && o.panicked != nil:
		x.Errorf("the panic went through to the caller: %v", o.panicked)
	case r.on == ours && !reported:
		x.Error("the panic was not logged")
	}
	if d.once {
		return
	}
	for _, f := range []func(){d.also, d.do} {
		if o, ok := within(start(f)); !ok || o.panicked != nil {
			x.Errorf("it does not work afterwards: %v %+v", ok, o)
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
}
