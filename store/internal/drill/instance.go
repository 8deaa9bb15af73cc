package drill

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

const instanceVariable = "WEIR_DRILL_INSTANCE"

// A job is what an instance does. An instance is a process that shares a limiter with others. It writes these lines:
//
//	ready                  it is connected, and waits for the first command to begin
//	g key n                n permits were granted
//	h id n fence           it holds a lease of n permits
//	l id                   it has lost that lease
//	r id                   it is about to release that lease
//	done                   the job is done
//
// Each line ends with the machine's time in ns, and is written before the instance does anything else. The instance ends
// when its standard input does. Therefore, it ends when the process that has started it ends.
type job struct {
	Place      string
	Name       string
	Kind       limitertest.Kind
	Limits     limitertest.Limits
	Options    store.LimiterOptions
	Keys       int // 0: not partitioned
	Goroutines int
	Permits    []int // the numbers of permits that requests ask for; see Work
	Work       string
}

// The kinds of work.
const (
	takeAll      = "take all"      // take from every key until nothing is left, with each number of Permits in turn
	takeForever  = "take forever"  // wait for permits again and again, with any of Permits
	leaseForever = "lease forever" // wait for leases and release them again and again
	leaseOnce    = "lease once"    // one lease, released at the second command
)

// Main returns if this process is not an instance. Otherwise it runs the instance and ends the process. An init function
// of the test must call it, before tests run.
func Main(open Opener) {
	text := os.Getenv(instanceVariable)
	if text == "" {
		return
	}
	if err := runInstance(open, text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runInstance(open Opener, text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	b, disconnect, err := open(j.Place)
	if err != nil {
		return err
	}
	defer disconnect()
	// A machine that is busy with tests is slow, and these jobs do not test outages.
	s, err := store.New(b, &store.Options{CallTimeout: 20 * time.Second})
	if err != nil {
		return err
	}
	w := worker{job: j, commands: make(chan struct{})}
	if err := w.makeLimiter(s); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go w.listen(cancel)
	write("ready")
	<-w.commands
	err = w.work(ctx)
	write("done")
	if closing := s.Close(); err == nil {
		err = closing
	}
	return err
}

// write writes one line at once.
func write(format string, args ...any) {
	line := fmt.Sprintf(format, args...) + fmt.Sprintf(" %d\n", time.Now().UnixNano())
	if _, err := os.Stdout.WriteString(line); err != nil {
		os.Exit(1) // the parent has ended
	}
}

// A worker does an instance's job.
type worker struct {
	job
	commands chan struct{} // a command arrived
	ids      atomic.Int64
	limiter  func(key int) limiter.Limiter
}

func (w *worker) makeLimiter(s *store.Store) error {
	if w.Keys > 0 {
		l, _, err := buildPartitioned(s, w.Name, w.Kind, w.Limits, &w.Options)
		w.limiter = func(key int) limiter.Limiter { return newOneKey(l, strconv.Itoa(key)) }
		return err
	}
	l, err := build(s, w.Name, w.Kind, w.Limits, &w.Options)
	w.limiter = func(int) limiter.Limiter { return l }
	return err
}

// listen passes on the commands, each a line, until the input ends.
func (w *worker) listen(over func()) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		w.commands <- struct{}{}
	}
	over()
}

// work returns nil if ctx has ended.
func (w *worker) work(ctx context.Context) error {
	do := map[string]func(context.Context, int) error{
		takeAll: w.takeAll, takeForever: w.takeForever, leaseForever: w.leaseForever, leaseOnce: w.leaseOnce,
	}[w.Work]
	results := make(chan error, w.Goroutines)
	for i := range w.Goroutines {
		go func() { results <- do(ctx, i) }()
	}
	var all error
	for range w.Goroutines {
		if err := <-results; !errors.Is(err, context.Canceled) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// takeAll divides many keys among the goroutines. If there is one key, all goroutines take from it.
func (w *worker) takeAll(ctx context.Context, goroutine int) error {
	for _, key := range rand.Perm(max(w.Keys, 1)) {
		if w.Keys > 1 && key%w.Goroutines != goroutine {
			continue
		}
		for _, n := range w.Permits {
			for more := true; more; {
				lease, err := decided(w.limiter(key).TryAcquire(ctx, n))
				if err != nil {
					return err
				}
				if more = lease.Acquired(); more {
					write("g %d %d", key, n)
				}
			}
		}
	}
	return nil
}

func (w *worker) anyPermits() int { return w.Permits[rand.IntN(len(w.Permits))] }

func (w *worker) takeForever(ctx context.Context, _ int) error {
	for {
		key, n := rand.IntN(max(w.Keys, 1)), w.anyPermits()
		lease, err := decided(w.limiter(key).Acquire(ctx, n))
		switch {
		case err != nil:
			return err
		case lease.Acquired():
			write("g %d %d", key, n)
		}
	}
}

func (w *worker) leaseForever(ctx context.Context, _ int) error {
	for {
		lease, id, err := w.lease(ctx, w.anyPermits())
		if err != nil {
			return err
		}
		time.Sleep(time.Duration(rand.IntN(5_000)) * time.Microsecond) // the work that needs the lease
		write("r %d", id)
		lease.Release()
	}
}

func (w *worker) leaseOnce(ctx context.Context, _ int) error {
	lease, id, err := w.lease(ctx, w.Permits[0])
	if err != nil {
		return err
	}
	lost, _ := store.LostKey.From(lease)
	for range 2 {
		select {
		case <-lost:
			write("l %d", id)
			lost = nil
		case <-w.commands:
			write("r %d", id)
			lease.Release()
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func (w *worker) lease(ctx context.Context, n int) (limiter.Lease, int64, error) {
	lease, err := decided(w.limiter(0).Acquire(ctx, n))
	if err == nil && !lease.Acquired() {
		err = errors.New("the queue has no room")
	}
	if err != nil {
		return lease, 0, err
	}
	id := w.ids.Add(1)
	fence, _ := store.FenceKey.From(lease)
	write("h %d %d %d", id, lease.Permits(), fence)
	return lease, id, nil
}
