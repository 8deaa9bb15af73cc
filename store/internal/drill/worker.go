package drill

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// A worker does an instance's job.
type worker struct {
	job
	commands chan struct{} // a command arrived
	ids      atomic.Int64
	taking   func(ctx context.Context, key, n int) (limiter.Lease, error)
	having   func(ctx context.Context, key, n int) (limiter.Lease, error)
}

func (w *worker) make(s *store.Store) error {
	if w.Keys > 0 {
		l, _, err := buildPartitioned(s, w.Name, w.Kind, w.Limits, &w.How)
		w.taking = func(ctx context.Context, key, n int) (limiter.Lease, error) {
			return l.TryAcquire(ctx, strconv.Itoa(key), n)
		}
		w.having = func(ctx context.Context, key, n int) (limiter.Lease, error) {
			return l.Acquire(ctx, strconv.Itoa(key), n)
		}
		return err
	}
	l, err := build(s, w.Name, w.Kind, w.Limits, &w.How)
	w.taking = func(ctx context.Context, _, n int) (limiter.Lease, error) { return l.TryAcquire(ctx, n) }
	w.having = func(ctx context.Context, _, n int) (limiter.Lease, error) { return l.Acquire(ctx, n) }
	return err
}

// listen passes words on, each a line, until the input ends.
func (w *worker) listen(over func()) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		w.commands <- struct{}{}
	}
	over()
}

// work returns nil if ctx has ended.
func (w *worker) work(ctx context.Context) error {
	does := map[string]func(context.Context, int) error{
		takeAll: w.takeAll, takeForever: w.takeOn, leaseOn: w.holdOn, leaseOnce: w.holdOnce,
	}[w.Work]
	results := make(chan error, w.Goroutines)
	for i := range w.Goroutines {
		go func() { results <- does(ctx, i) }()
	}
	var all error
	for range w.Goroutines {
		if err := <-results; !errors.Is(err, context.Canceled) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// takeAll asks for every key, each goroutine for its part of them; for one key all do.
func (w *worker) takeAll(ctx context.Context, goroutine int) error {
	for _, key := range rand.Perm(max(w.Keys, 1)) {
		if w.Keys > 1 && key%w.Goroutines != goroutine {
			continue
		}
		for _, n := range w.Permits {
			for more := true; more; {
				lease, err := answered(w.taking(ctx, key, n))
				if err != nil {
					return err
				}
				if more = lease.Acquired(); more {
					say("g %d %d", key, n)
				}
			}
		}
	}
	return nil
}

func (w *worker) takeOn(ctx context.Context, _ int) error {
	for {
		key, n := rand.IntN(max(w.Keys, 1)), w.Permits[rand.IntN(len(w.Permits))]
		lease, err := answered(w.having(ctx, key, n))
		switch {
		case err != nil:
			return err
		case lease.Acquired():
			say("g %d %d", key, n)
		}
	}
}

func (w *worker) holdOn(ctx context.Context, _ int) error {
	for {
		n := w.Permits[rand.IntN(len(w.Permits))]
		lease, err := answered(w.having(ctx, 0, n))
		if err != nil {
			return err
		}
		if !lease.Acquired() {
			return errors.New("the queue has no room")
		}
		id := w.hold(lease)
		time.Sleep(time.Duration(rand.IntN(5_000)) * time.Microsecond) // the work that needs the lease
		say("r %d", id)
		lease.Release()
	}
}

func (w *worker) holdOnce(ctx context.Context, _ int) error {
	lease, err := answered(w.having(ctx, 0, w.Permits[0]))
	if err != nil {
		return err
	}
	id := w.hold(lease)
	lost, _ := store.LostKey.From(lease)
	for range 2 {
		select {
		case <-lost:
			say("l %d", id)
			lost = nil
		case <-w.commands:
			say("r %d", id)
			lease.Release()
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func (w *worker) hold(lease limiter.Lease) int64 {
	id := w.ids.Add(1)
	fence, _ := store.FenceKey.From(lease)
	say("h %d %d %d", id, lease.Permits(), fence)
	return id
}

// answered returns an error if the store did not decide.
func answered(lease limiter.Lease, err error) (limiter.Lease, error) {
	if reason, without := store.OutageKey.From(lease); without {
		return lease, fmt.Errorf("the store was not asked: %w", reason)
	}
	return lease, err
}
