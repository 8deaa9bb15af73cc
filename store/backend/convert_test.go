package backend

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
)

// A twin is a limiter of package limiter and what a store knows of the same one.
type twin struct {
	local  limiter.Limiter
	reconf func(rate.Schedule) error
	d      *Definition
	s      State
	lazy   []*Definition // the definitions that the state has not been converted to yet
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func newTwin(t *testing.T, l rate.Schedule) *twin {
	t.Helper()
	now := time.Now().UnixMicro()
	w := &twin{d: NewDefinition("it", l, now)}
	w.s = w.d.Stored(w.d.Full(now))
	var err error
	switch l.Kind {
	case rate.TokenBucket:
		w.local, w.reconf, err = twinOf(limiter.NewTokenBucket, l, bucketOptions)
	case rate.FixedWindow:
		w.local, w.reconf, err = twinOf(limiter.NewFixedWindow, l, fixedOptions)
	default:
		w.local, w.reconf, err = twinOf(limiter.NewSlidingWindow, l, slidingOptions)
	}
	require.NoError(t, err)
	return w
}

func twinOf[L limiter.Configurable, O limiter.Options](make func(O) (L, error), l rate.Schedule, options func(rate.Schedule) O) (limiter.Limiter, func(rate.Schedule) error, error) {
	local, err := make(options(l))
	return local, func(to rate.Schedule) error { return local.Reconfigure(options(to)) }, err
}

func bucketOptions(l rate.Schedule) limiter.TokenBucketOptions {
	return limiter.TokenBucketOptions{TokenLimit: int(l.Permits), ReplenishmentPeriod: micros(l.Period), TokensPerPeriod: int(l.Refill)}
}

func fixedOptions(l rate.Schedule) limiter.FixedWindowOptions {
	return limiter.FixedWindowOptions{PermitLimit: int(l.Permits), Window: micros(l.Period)}
}

func slidingOptions(l rate.Schedule) limiter.SlidingWindowOptions {
	return limiter.SlidingWindowOptions{PermitLimit: int(l.Permits), Window: micros(l.Period * l.Segments), SegmentsPerWindow: int(l.Segments)}
}

// take asks both for n permits, and for as many as are left, which must be the same.
func (w *twin) take(t *testing.T, n int64, history any) {
	t.Helper()
	now := time.Now().UnixMicro()
	w.convert()
	granted := []int64{0}
	w.d.Decide(&w.s.State, now, []Request{{Min: n, Max: n}}, granted)
	lease, err := w.local.TryAcquire(t.Context(), int(n))
	if err != nil {
		require.ErrorIs(t, err, limiter.ErrPermitCount)
	}
	require.Equal(t, lease.Acquired(), granted[0] != Rejected, "take %d at %d: %+v; %v", n, now, w.s, history)
	left := w.local.(limiter.StatisticsProvider).Statistics().AvailablePermits
	require.Equal(t, left, max(w.d.Permits-w.s.Missing, 0), "left after %d at %d: %+v; %v", n, now, w.s, history)
}

func (w *twin) reconfigure(t *testing.T, to rate.Schedule, lazily bool) {
	t.Helper()
	require.NoError(t, w.reconf(to))
	w.d = w.d.WithLimits(to, time.Now().UnixMicro())
	w.lazy = append(w.lazy, w.d)
	if !lazily {
		w.convert()
	}
}

// convert goes from one definition to the next. A state that misses some of them counts by
// its own until the last: a store does not know what was in between.
func (w *twin) convert() {
	for _, d := range w.lazy {
		w.s = d.Convert(w.s)
	}
	w.lazy = nil
}

func randomLimits(random *rand.Rand, k rate.Kind) rate.Schedule {
	l := rate.Schedule{Kind: k, Permits: 1 + random.Int64N(9), Period: 1 + random.Int64N(40)}
	switch k {
	case rate.TokenBucket:
		l.Refill = 1 + random.Int64N(l.Permits)
	case rate.SlidingWindow:
		l.Segments = 1 + random.Int64N(5)
	}
	return l
}

// A store that converts a state, at once or when it next sees it, grants what a limiter in
// the process grants that is reconfigured.
func TestConvert_AsReconfigure(t *testing.T) {
	for _, k := range []rate.Kind{rate.TokenBucket, rate.FixedWindow, rate.SlidingWindow} {
		t.Run(k.String(), func(t *testing.T) {
			for seed := range uint64(400) {
				synctest.Test(t, func(t *testing.T) { runTwin(t, k, seed) })
			}
		})
	}
}

func runTwin(t *testing.T, k rate.Kind, seed uint64) {
	random := rand.New(rand.NewPCG(seed, uint64(k)))
	l := randomLimits(random, k)
	history := []string{fmt.Sprintf("seed %d: %+v", seed, l)}
	w := newTwin(t, l)
	for range 25 {
		by := 1 + random.Int64N(2*l.Period) // a definition has a microsecond for itself
		time.Sleep(micros(by))              // fake time
		if random.IntN(5) == 0 {
			l = randomLimits(random, k)
			history = append(history, fmt.Sprintf("+%d: now %+v", by, l))
			w.reconfigure(t, l, random.IntN(2) == 0)
			continue
		}
		n := 1 + random.Int64N(l.Permits)
		history = append(history, fmt.Sprintf("+%d: take %d", by, n))
		w.take(t, n, history)
	}
}

// What was granted counts under another kind, too.
func TestConvert_OtherKind(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, from := range kindsOfThree(random) {
		for _, to := range kindsOfThree(random) {
			d := NewDefinition("it", from, 1000)
			old := d.Full(1000)
			d.Decide(&old, 1000, []Request{{Min: 1, Max: 1}}, []int64{0})
			next := d.WithLimits(to, 1001)
			s := next.Convert(d.Stored(old))
			assert.Equal(t, next.Stored(s.State), s)
			assert.Equal(t, int64(1), s.Missing, "from %v to %v", from.Kind, to.Kind)
			assert.LessOrEqual(t, s.Floor, s.Missing)
		}
	}
}

func TestConvert_UnknownState(t *testing.T) {
	d := NewDefinition("it", rate.Schedule{Kind: rate.FixedWindow, Permits: 3, Period: 10}, 1000)
	for _, s := range []State{
		{},
		{Schedule: rate.Schedule{Kind: rate.Concurrency, Period: 5}, State: rate.State{Missing: 3}},
		{Schedule: rate.Schedule{Kind: rate.FixedWindow}, State: rate.State{Missing: 3}},
	} {
		assert.Equal(t, d.Stored(d.Full(1000)), d.Convert(s))
	}
}

// The clock steps back behind the definition in force, which is then changed: that is no
// reason for a fresh burst.
func TestConvert_AfterAStepBack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, l := range kindsOfThree(random) {
		for _, period := range []int64{l.Period, 7, 13} {
			d := NewDefinition("it", l, 1_000_000)
			now, granted := int64(500_000), []int64{0} // after a step back
			old := d.Full(now)
			d.Decide(&old, now, []Request{{Min: l.Permits, Max: l.Permits}}, granted)
			to := l
			to.Period = period
			next := d.WithLimits(to, now)
			s := next.Convert(d.Stored(old))
			next.Decide(&s.State, now, []Request{{}}, granted)
			assert.Equal(t, Rejected, granted[0], "%+v to %+v: %+v", l, to, s)
		}
	}
}
