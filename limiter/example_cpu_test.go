package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// CPUTimes are running totals since some moment, in any unit: what the machine's
// processors spent working, and what there was in all.
type CPUTimes struct{ Busy, Total uint64 }

// A CPULimiter rejects everything while the machine is too busy, and grants
// everything while it is not. Leases have nothing to give back. Put it first in
// a [limiter.Chain]: it is cheap to ask.
//
// The load of the machine is the mean between the last two samples of its
// source. If it is not known, at first and after the source has failed, the
// limiter grants. It has no goroutine: the first call after a sample is due takes
// it, and concurrent calls use the one before.
//
// The zero CPULimiter is not usable; make one with [NewCPULimiter]. It is safe
// for use by many goroutines at once.
type CPULimiter struct {
	threshold float64
	every     time.Duration
	source    func() (CPUTimes, error)
	start     time.Time

	due  atomic.Int64  // when to sample next, in nanoseconds from start
	busy atomic.Uint64 // the bits of the last fraction; NaN where it is not known

	sampling sync.Mutex
	last     CPUTimes // guarded by sampling
	seen     bool     // last is there
}

var _ limiter.Limiter = (*CPULimiter)(nil)

// NewCPULimiter returns a limiter that rejects while more than threshold, a
// fraction of 1, of the processors' time is spent working. It asks source at
// most once in every, and on each call if that is 0; 250 ms is a good choice. A
// nil source is [ProcStat].
//
// The error is [limiter.ErrInvalidOptions].
func NewCPULimiter(threshold float64, every time.Duration, source func() (CPUTimes, error)) (*CPULimiter, error) {
	if !(threshold > 0 && threshold <= 1) { // so that NaN is refused as well
		return nil, fmt.Errorf("%w: threshold is %v, must be above 0 and at most 1", limiter.ErrInvalidOptions, threshold)
	}
	if every < 0 {
		return nil, fmt.Errorf("%w: every is %v, must be at least 0", limiter.ErrInvalidOptions, every)
	}
	if source == nil {
		source = ProcStat
	}
	c := &CPULimiter{threshold: threshold, every: every, source: source, start: time.Now()}
	c.setBusy(math.NaN())
	c.sample() // what the next one is compared with
	return c, nil
}

// TryAcquire grants any number of permits unless the machine is too busy. A
// rejection says when the next sample is due.
func (c *CPULimiter) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	if n < 0 {
		return limiter.Lease{}, fmt.Errorf("%w: %d is negative", limiter.ErrPermitCount, n)
	}
	if err := ctx.Err(); err != nil {
		return limiter.Lease{}, err
	}
	c.sample()
	if busy, known := c.Busy(); known && busy > c.threshold {
		return custom.Rejected(c.untilDue(), "cpu busy"), nil
	}
	return custom.Granted(n, nil), nil
}

// Acquire is TryAcquire: there is no queue, because waiters would all go ahead
// at once.
func (c *CPULimiter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	if err := ctx.Err(); err != nil {
		return limiter.Lease{}, err // comes before anything else, as everywhere
	}
	return c.TryAcquire(ctx, n)
}

// Busy returns the last known fraction of time that was spent working, from 0 to
// 1; ok is false where it is not known.
func (c *CPULimiter) Busy() (fraction float64, ok bool) {
	f := math.Float64frombits(c.busy.Load())
	return f, !math.IsNaN(f)
}

func (c *CPULimiter) setBusy(f float64) { c.busy.Store(math.Float64bits(f)) }

// untilDue is 0, which is "not known", where every call samples.
func (c *CPULimiter) untilDue() time.Duration {
	if c.every == 0 {
		return 0
	}
	// The next sample can be overdue while a slow source is asked.
	return max(time.Duration(c.due.Load())-time.Since(c.start), time.Nanosecond)
}

// sample asks the source if that is due and no other call does.
func (c *CPULimiter) sample() {
	if time.Since(c.start) < time.Duration(c.due.Load()) || !c.sampling.TryLock() {
		return
	}
	defer c.sampling.Unlock()
	now := time.Since(c.start)
	if now < time.Duration(c.due.Load()) {
		return // another call has just asked
	}
	c.due.Store(int64(now + c.every))
	t, err := c.source()
	if err != nil {
		c.seen = false
		c.setBusy(math.NaN())
		return
	}
	c.compare(t)
}

// compare takes the sample t. Counters of a kernel can step back, or stand still
// between two samples: then there is nothing to learn but where to start from.
func (c *CPULimiter) compare(t CPUTimes) {
	last, seen := c.last, c.seen
	c.last, c.seen = t, true
	if !seen || t.Total <= last.Total || t.Busy < last.Busy {
		return
	}
	busy := float64(t.Busy-last.Busy) / float64(t.Total-last.Total)
	c.setBusy(min(busy, 1))
}

// ProcStat is the source on Linux; elsewhere it always fails, and so a
// [CPULimiter] grants everything there.
func ProcStat() (CPUTimes, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return CPUTimes{}, err
	}
	return ParseProcStat(string(text))
}

// ParseProcStat reads the line of /proc/stat that sums up all processors:
//
//	cpu  user nice system idle iowait irq softirq steal guest guest_nice
//
// Waiting for a disk is not work. Time stolen by other virtual machines is: it
// cannot be had. The time of guests is part of user and nice already. Old kernels
// leave out fields at the end, the first four are always there.
func ParseProcStat(text string) (CPUTimes, error) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "cpu" {
			return sumUp(fields[1:])
		}
	}
	return CPUTimes{}, errors.New("no cpu line")
}

func sumUp(fields []string) (t CPUTimes, err error) {
	const idle, iowait, guest = 3, 4, 8
	if len(fields) <= idle {
		return t, fmt.Errorf("cpu line has %d fields, must have at least 4", len(fields))
	}
	for i, field := range fields[:min(len(fields), guest)] {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return CPUTimes{}, fmt.Errorf("cpu line: %w", err)
		}
		t.Total += n
		if i != idle && i != iowait {
			t.Busy += n
		}
	}
	return t, nil
}

// A limiter of one's own that looks at the machine rather than at a count. The
// source is made up here, and asked on each call.
func Example_cpu() {
	samples := []CPUTimes{{0, 0}, {20, 100}, {115, 200}, {130, 300}}
	made := func() (CPUTimes, error) {
		t := samples[0]
		samples = samples[1:]
		return t, nil
	}
	l, err := NewCPULimiter(0.9, 0, made)
	if err != nil {
		panic(err)
	}
	for range 3 {
		lease, err := l.TryAcquire(context.Background(), 1)
		if err != nil {
			panic(err)
		}
		answer := "go ahead"
		if !lease.Acquired() {
			answer = lease.Reason()
		}
		busy, _ := l.Busy()
		fmt.Printf("%.0f%%: %s\n", 100*busy, answer)
	}

	// Output:
	// 20%: go ahead
	// 95%: cpu busy
	// 15%: go ahead
}
