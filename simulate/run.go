package simulate

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/simulate/internal/bubble"
	"github.com/weir-go/weir/simulate/internal/input"
)

// Run simulates s, on one processor and a part of another one for the garbage collector. Run can be called concurrently, but
// not inside a bubble of [testing/synctest].
//
// After the load's duration, the requests in flight have as long again to end, and at least a minute. Then they are cut off:
// their contexts are canceled, and a request that does not succeed then counts as Unfinished.
//
// Run returns a [weir.OptionsError] if s is not valid, an error of s.Config, of a pipeline or of a Recording as it is, the
// cause of ctx's end if ctx ends first, and another error if more than s.MaxInFlight requests are in flight, if a function
// of s panics, if a request is tried again without a delay and without an end, or if requests do not end although their
// contexts have.
func Run(ctx context.Context, s Scenario) (*Result, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	r := &run{scenario: s.withDefaults(), ctx: ctx}
	deterministic.Runs.Add(1)
	defer deterministic.Runs.Add(-1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			p := recover()
			switch {
			case p == nil:
			case r.start.IsZero(): // main has not begun
				r.err = fmt.Errorf("simulate: Run must not be called inside a bubble of testing/synctest: %v", p)
			default:
				r.err = errors.Join(r.err, fmt.Errorf("simulate: the simulation did not end: %v", p))
			}
		}()
		bubble.Run(r.main)
	}()
	<-done
	if r.err != nil {
		return nil, r.err
	}
	return r.finish(r.assumed), nil
}

type run struct {
	turns
	collector
	scenario Scenario // with the defaults
	ctx      context.Context
	err      error // of main
	assumed  map[string]bool

	start     time.Time
	events    minHeap[*event]
	scheduled int64       // how many events there were
	timer     *time.Timer // of sleep; nil, or it has fired
	service   *serving
	arrivals  *arrivals
	next      input.Request        // the next arrival of an open load
	pipelines []*pipeline.Pipeline // one for each instance
	onClose   []func() error
	openStores

	clients  []*client // all, in the order in which they were made
	idle     []*client // of an open load
	inFlight int       // requests, and clients of a closed load
	numbers  int64     // of requests
	ending   bool      // no request is tried again
}

func (r *run) now() time.Duration { return time.Since(r.start) }

func (r *run) main() {
	r.start = time.Now()
	r.asked = make(chan struct{}, 1)
	r.collector = newCollector(&r.scenario, r.now)
	r.service = newServing(r, &r.scenario.Service)
	r.fail(r.configure())
	if r.err == nil {
		r.fail(recovered(r.loop))
	}
	r.fail(recovered(r.stop))
	for _, f := range slices.Backward(r.onClose) {
		r.fail(recovered(f))
	}
}

// configure calls build in a goroutine of its own, which ends if Config fails the test that calls Run.
func (r *run) configure() error {
	built := make(chan error, 1)
	go func() {
		err := errors.New("simulate: Config ended its goroutine")
		defer func() { built <- err }()
		err = recovered(r.build)
	}()
	return <-built
}

// fail makes the run end with err, unless it has an error already.
func (r *run) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// recovered calls f. A panic is an error.
func recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	return f()
}

func panicked(p any) error {
	return fmt.Errorf("simulate: a function of the scenario or of its pipelines: %w\n%s", &registry.PanicError{Value: p}, debug.Stack())
}

// build makes the registries and finds the pipelines.
func (r *run) build() error {
	for i := range r.scenario.Instances {
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		change, err := r.scenario.Config(&Setup{Instance: i, run: r})
		if err != nil {
			return err
		}
		name, err := pipelineOf(change, r.scenario.Pipeline)
		if err != nil {
			return err
		}
		reg := registry.New(&registry.Options{Listener: interposer{r}})
		r.onClose = append(r.onClose, func() error { return reg.Close(context.Background()) })
		if err := reg.Apply(context.Background(), change); err != nil {
			return err
		}
		p, err := reg.Get(name)
		if err != nil {
			return err
		}
		r.pipelines = append(r.pipelines, p)
		r.result.Pipeline = name
	}
	return nil
}

// pipelineOf returns the name of the pipeline that requests go through. If name is empty, change must define exactly one.
func pipelineOf(change registry.Change, name string) (string, error) {
	var p validate.Problems
	names := slices.Sorted(maps.Keys(change.Define))
	switch {
	case len(names) == 0:
		p.Add("Config", nil, "must define a pipeline")
	case name == "" && len(names) == 1:
		name = names[0]
	case name == "":
		p.Add("Pipeline", nil, "must say which pipeline the requests go through: %s", strings.Join(names, ", "))
	case !slices.Contains(names, name):
		p.Add("Pipeline", name, "must be one of %s", strings.Join(names, ", "))
	}
	return name, p.Err("simulate")
}

// checkEvery is how many events there are between two looks at the context.
const checkEvery = 1 << 10

// loop runs everything until the last request has ended.
func (r *run) loop() error {
	next, err := r.begin()
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		r.settle()
		r.sample()
		if next == nil && r.inFlight == 0 {
			return nil
		}
		if r.err != nil {
			return nil //nolint:nilerr // the caller returns r.err
		}
		if r.endless {
			return fmt.Errorf("simulate: a request is tried again without an end %v after the beginning: retries that have no delay need one", r.now())
		}
		if i%checkEvery == 0 && r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		at, now := r.events[0].at, r.now() // the cut, or what comes after it, is always there
		if next != nil {
			at = min(at, next.At)
		}
		if at > now {
			r.sleep(at - now)
			r.sample() // what there was until now
			continue
		}
		if next != nil && next.At == at {
			if err := r.arrive(next); err != nil {
				return err
			}
			if next, err = r.nextArrival(); err != nil {
				return err
			}
			continue
		}
		if e := heap.Pop(&r.events).(*event); e.do != nil {
			e.do()
		} else {
			r.give(e.task)
		}
	}
}

// sleep waits until d has passed, or a task asks for a turn. Then all other goroutines wait. A timer that has not fired is
// not reset: the runtime then looks at all timers of the bubble, of which each request has some.
func (r *run) sleep(d time.Duration) {
	if r.timer == nil {
		r.timer = time.NewTimer(d)
	} else {
		r.timer.Reset(d)
	}
	select {
	case <-r.timer.C:
	case <-r.asked:
		r.timer.Stop()
		r.timer = nil
	}
	bubble.Wait()
}

func (r *run) schedule(e event) {
	r.scheduled++
	e.seq = r.scheduled
	heap.Push(&r.events, &e)
}
