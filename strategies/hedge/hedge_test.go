package hedge_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/hedge"
)

var errBoom = errors.New("boom")

func with(o *hedge.Options) *pipeline.Pipeline {
	return weir.Must(pipeline.New("prices", hedge.New(o)))
}

// A script says what each attempt does: how long it takes, and what comes of it.
type script []act

type act struct {
	takes time.Duration
	deaf  bool // it pays no attention to its context
	err   error
	panic any
}

// run returns a callback that follows the script and returns the attempt's number.
func (s script) run(began *[]time.Duration) func(ctx context.Context) (int, error) {
	var writing sync.Mutex
	start := time.Now()
	return func(ctx context.Context) (int, error) {
		number := hedge.AttemptNumber(ctx)
		writing.Lock()
		*began = append(*began, time.Since(start))
		writing.Unlock()
		a := s[number]
		heard := ctx.Done()
		if a.deaf {
			heard = nil
		}
		select {
		case <-time.After(a.takes):
		case <-heard:
			return -1, context.Cause(ctx)
		}
		if a.panic != nil {
			panic(a.panic)
		}
		return number, a.err
	}
}

const (
	ms = time.Millisecond
	s  = time.Second
)

func TestStrategy_WhichAttemptWins(t *testing.T) {
	other := errors.New("other")
	cases := []struct {
		name    string
		options *hedge.Options
		script  script
		began   []time.Duration
		took    time.Duration
		value   int
		err     error
	}{
		{"the first in time", nil, script{{takes: s}}, []time.Duration{0}, s, 0, nil},
		{"the hedge", nil, script{{takes: 9 * s}, {takes: s}}, []time.Duration{0, 2 * s}, 3 * s, 1, nil},
		{"the first after all", nil, script{{takes: 3 * s}, {takes: 9 * s}}, []time.Duration{0, 2 * s}, 3 * s, 0, nil},
		{"a loser that does not listen does not delay", nil, script{{takes: 99 * s, deaf: true}, {takes: s}}, []time.Duration{0, 2 * s}, 3 * s, 1, nil},
		{"a failure makes a hedge at once", nil, script{{takes: s, err: errBoom}, {takes: s}}, []time.Duration{0, s}, 2 * s, 1, nil},
		{"a failure of a hedge, too", &hedge.Options{MaxHedges: 2}, script{{takes: 9 * s}, {takes: s, err: errBoom}, {takes: s}}, []time.Duration{0, 2 * s, 3 * s}, 4 * s, 2, nil},
		{"the delay counts from the last start", &hedge.Options{MaxHedges: 3}, script{{takes: s, err: errBoom}, {takes: 9 * s}, {takes: 9 * s}, {takes: s}}, []time.Duration{0, s, 3 * s, 5 * s}, 6 * s, 3, nil},
		{"all fail: the first's", nil, script{{takes: 4 * s, err: errBoom}, {takes: s, err: other}}, []time.Duration{0, 2 * s}, 4 * s, 0, errBoom},
		{"no more than there may be", &hedge.Options{Delay: ms, MaxHedges: 2}, script{{takes: s}, {takes: s}, {takes: s}}, []time.Duration{0, ms, 2 * ms}, s, 0, nil},
		{"a context's error wins", nil, script{{takes: 3 * s, err: context.Canceled}, {takes: 9 * s}}, []time.Duration{0, 2 * s}, 3 * s, 0, context.Canceled},
		{"at once", &hedge.Options{AtOnce: true, MaxHedges: 2}, script{{takes: 3 * s}, {takes: s, err: errBoom}, {takes: 2 * s}}, []time.Duration{0, 0, 0}, 2 * s, 2, nil},
		{"in turn", &hedge.Options{Delay: -1, MaxHedges: 2}, script{{takes: 9 * s, err: errBoom}, {takes: s, err: other}, {takes: s}}, []time.Duration{0, 9 * s, 10 * s}, 11 * s, 2, nil},
		{"in turn, and all fail", &hedge.Options{Delay: -1}, script{{takes: 9 * s, err: errBoom}, {takes: s, err: other}}, []time.Duration{0, 9 * s}, 10 * s, 0, errBoom},
		{"no hedges", &hedge.Options{MaxHedges: -1}, script{{takes: 9 * s, err: errBoom}}, []time.Duration{0}, 9 * s, 0, errBoom},
		{"a delay for each", &hedge.Options{MaxHedges: 3, DelayFunc: func(_ context.Context, n int) time.Duration {
			return []time.Duration{s, 0, -1}[n]
		}}, script{{takes: 9 * s}, {takes: 9 * s}, {takes: 3 * s, err: errBoom}, {takes: s}}, []time.Duration{0, s, s, 4 * s}, 5 * s, 3, nil},
		{"a delay that ends with its attempt", &hedge.Options{MaxHedges: 2, DelayFunc: func(_ context.Context, n int) time.Duration {
			return []time.Duration{2 * s, -1}[n]
		}}, script{{takes: s, err: errBoom}, {takes: 9 * s}, {}}, []time.Duration{0, s}, 10 * s, 1, nil},
		{"two at the same time: the hedge is not needed", nil, script{{takes: 2*s - 1}}, []time.Duration{0}, 2*s - 1, 0, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var began []time.Duration
				start := time.Now()
				value, err := pipeline.ExecuteValue(t.Context(), with(c.options), c.script.run(&began))
				assert.Equal(t, c.took, time.Since(start))
				assert.Equal(t, c.value, value)
				assert.Equal(t, c.err, err)
				assert.Equal(t, c.began, began)
				time.Sleep(time.Hour) // for losers that do not listen
			})
		})
	}
}

func TestStrategy_CancelsLosers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan [2]error, 2)
		err := with(&hedge.Options{Delay: s, MaxHedges: 2}).Execute(t.Context(), func(ctx context.Context) error {
			if hedge.AttemptNumber(ctx) == 2 {
				return nil
			}
			<-ctx.Done()
			told <- [2]error{ctx.Err(), context.Cause(ctx)}
			return ctx.Err()
		})
		require.NoError(t, err)
		for range 2 {
			assert.Equal(t, [2]error{context.Canceled, hedge.ErrLost}, <-told)
		}
	})
}

func TestStrategy_WinnersContext(t *testing.T) {
	var kept context.Context
	require.NoError(t, with(nil).Execute(t.Context(), func(ctx context.Context) error {
		kept = ctx
		return ctx.Err()
	}))
	assert.Equal(t, context.Canceled, context.Cause(kept))
}

func TestStrategy_LateSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), s)
		defer cancel()
		var began []time.Duration
		value, err := pipeline.ExecuteValue(ctx, with(nil), script{{takes: 5 * s, deaf: true}}.run(&began))
		assert.NoError(t, err)
		assert.Zero(t, value)
		assert.Len(t, began, 1, "no hedge when the context has ended")
	})
}

func TestStrategy_ContextEndsAndAllWereHandled(t *testing.T) {
	for _, delay := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			cause := errors.New("the user went away")
			ctx, cancel := context.WithCancelCause(t.Context())
			calls := 0
			err := with(&hedge.Options{Delay: delay}).Execute(ctx, func(context.Context) error {
				calls++
				cancel(cause)
				time.Sleep(3 * s)
				return errBoom
			})
			assert.Equal(t, 1, calls)
			for _, target := range []error{errBoom, context.Canceled, cause} {
				assert.ErrorIs(t, err, target)
			}
			assert.EqualError(t, err, "boom; hedge: gave up after attempt 1: context canceled: the user went away")
		})
	}
}

func TestStrategy_ContextEndsAfterAHandledResult(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := with(&hedge.Options{Handle: func(any, error) bool { return true }})
	v, err := pipeline.ExecuteValue(ctx, p, func(context.Context) (string, error) { cancel(); return "unwanted", nil })
	assert.Equal(t, "unwanted", v, "for the caller to close")
	assert.EqualError(t, err, "hedge: gave up after attempt 1: context canceled")
}

func TestStrategy_AttemptEndsWithTheCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*s)
		defer cancel()
		start := time.Now()
		err := with(nil).Execute(ctx, func(ctx context.Context) error {
			if hedge.AttemptNumber(ctx) == 1 { // it does not listen, the first does
				time.Sleep(time.Hour)
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		assert.Equal(t, context.DeadlineExceeded, err)
		assert.Equal(t, 3*s, time.Since(start))
		time.Sleep(time.Hour)
	})
}

func TestOptions_HandleResults(t *testing.T) {
	p := with(&hedge.Options{AtOnce: true, MaxHedges: 3, Handle: func(result any, _ error) bool { return result.(int) < 2 }})
	n, err := pipeline.ExecuteValue(t.Context(), p, func(ctx context.Context) (int, error) { return hedge.AttemptNumber(ctx), nil })
	require.NoError(t, err)
	assert.GreaterOrEqual(t, n, 2)
}

func TestAttempt_NestedHedges(t *testing.T) {
	var seen []string
	inner := with(&hedge.Options{Delay: -1})
	_ = with(&hedge.Options{Delay: -1}).Execute(t.Context(), func(outer context.Context) error {
		return inner.Execute(outer, func(ctx context.Context) error {
			seen = append(seen, fmt.Sprint(hedge.AttemptNumber(outer), hedge.AttemptNumber(ctx)))
			return errBoom
		})
	})
	assert.Equal(t, []string{"0 0", "0 1", "1 0", "1 1"}, seen)
	assert.Zero(t, hedge.AttemptNumber(t.Context()))
}

func TestStrategy_Concurrent(t *testing.T) {
	var opened, closed atomic.Int64
	p := with(&hedge.Options{Delay: time.Microsecond, MaxHedges: 3, Dispose: hedge.Dispose(func(*int) { closed.Add(1) })})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 50 {
				want := i*1000 + j
				v, err := pipeline.ExecuteValue(t.Context(), p, func(ctx context.Context) (*int, error) {
					time.Sleep(time.Duration(j%7) * 10 * time.Microsecond)
					opened.Add(1)
					if hedge.AttemptNumber(ctx)%2 == 0 && j%3 == 0 {
						return &want, errBoom
					}
					return &want, nil
				})
				if err != nil && !errors.Is(err, errBoom) {
					t.Error(err)
				}
				if *v != want {
					t.Errorf("%d, want %d: another execution's", *v, want)
				}
			}
		})
	}
	wg.Wait()
	assert.Eventually(t, func() bool { return opened.Load()-closed.Load() == 16*50 }, 5*s, ms, "one result each is returned, and all others disposed of")
}

// A deadline that is not the execution's own does not win: the next attempt may answer.
func TestOptions_HandleByDefault(t *testing.T) {
	for _, delay := range []time.Duration{time.Hour, -1} {
		p := with(&hedge.Options{Delay: delay})
		v, err := pipeline.ExecuteValue(t.Context(), p, func(ctx context.Context) (string, error) {
			if hedge.AttemptNumber(ctx) == 0 {
				return "", fmt.Errorf("query: %w", context.DeadlineExceeded)
			}
			return "fine", nil
		})
		assert.NoError(t, err)
		assert.Equal(t, "fine", v)
	}
}
