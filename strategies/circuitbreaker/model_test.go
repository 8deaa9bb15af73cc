package circuitbreaker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// Whatever happens in whatever order, a circuit does what the naive one does.
func TestStrategy_Model(t *testing.T) {
	histories := uint64(400)
	if testing.Short() {
		histories = 40
	}
	seen := make(map[string]int)
	for seed := range histories {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newHistory(t, seed).play(300, seen) })
		})
	}
	for _, transition := range []string{
		"closed>open", "open>half_open", "half_open>open", "half_open>closed", "closed>isolated", "open>isolated",
		"half_open>isolated", "isolated>closed", "open>closed",
	} {
		require.NotZero(t, seen[transition], "%s never happened", transition)
	}
}

// A history is one circuit and its naive twin.
type history struct {
	t       *testing.T
	random  *rand.Rand
	circuit *circuit
	control *circuitbreaker.Control
	naive   *naive
	running []running
	last    int
}

type running struct {
	started
	id, phase int
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	h := &history{t: t, random: rand.New(rand.NewPCG(seed, 1)), control: new(circuitbreaker.Control)}
	o := circuitbreaker.Options{
		FailureRatio:        []float64{-1, 0.1, 0.5, 1}[h.random.IntN(4)],
		MinimumThroughput:   1 + h.random.IntN(6),
		SamplingDuration:    time.Second,
		ConsecutiveFailures: h.random.IntN(4),
		BreakDuration:       time.Duration(1+h.random.IntN(5)) * 200 * time.Millisecond,
		HalfOpenProbes:      1 + h.random.IntN(3),
		Control:             h.control,
	}
	h.naive = &naive{o: o, began: time.Now()}
	h.circuit = newCircuit(t, o)
	return h
}

func (h *history) play(steps int, seen map[string]int) {
	for range steps {
		switch n := h.random.IntN(100); {
		case n < 40:
			h.start()
		case n < 80:
			h.finish()
		case n < 90:
			time.Sleep(time.Duration(h.random.IntN(8)) * 50 * time.Millisecond)
		case n < 97:
			time.Sleep(time.Duration(h.random.Int64N(int64(300 * time.Millisecond))))
		default:
			h.order()
		}
		require.Equal(h.t, h.naive.statistics(), h.circuit.Statistics())
	}
	for len(h.running) > 0 {
		h.finish()
	}
	var log []string
	for _, line := range h.circuit.log {
		var name, transition string
		if _, err := fmt.Sscan(line, &name, &transition); err == nil && slices.Contains([]string{"opened", "closed", "half-opened"}, name) {
			log = append(log, transition)
			seen[transition]++
		}
	}
	require.Equal(h.t, h.naive.log, log)
}

func (h *history) start() {
	h.last++
	ok, wait := h.naive.start(h.last)
	s := h.circuit.start(h.t.Context())
	select {
	case err := <-s.done:
		require.False(h.t, ok, "rejected: %v", err)
		open, is := errors.AsType[*circuitbreaker.OpenError](err)
		require.True(h.t, is)
		after, _ := open.RetryAfter()
		require.Equal(h.t, wait, after)
		require.Equal(h.t, h.naive.state, open.State)
	default:
		require.True(h.t, ok, "let through")
		h.running = append(h.running, running{s, h.last, h.naive.phase})
	}
}

func (h *history) finish() {
	if len(h.running) == 0 {
		return
	}
	i := h.random.IntN(len(h.running))
	r := h.running[i]
	h.running = slices.Delete(h.running, i, i+1)
	switch h.random.IntN(8) {
	case 0:
		h.naive.finish(r.id, r.phase, false, false)
		require.Equal(h.t, context.Canceled, r.finish(func(context.Context) error { return context.Canceled }))
	case 1:
		h.naive.finish(r.id, r.phase, true, true)
		require.Equal(h.t, pipeline.ErrAborted, r.finish(h.leave))
	case 2, 3:
		h.naive.finish(r.id, r.phase, true, true)
		require.Equal(h.t, errBoom, r.finish(fail))
	default:
		h.naive.finish(r.id, r.phase, false, true)
		require.NoError(h.t, r.finish(succeed))
	}
}

// leave does not return.
func (h *history) leave(context.Context) error {
	if h.random.IntN(2) == 0 {
		runtime.Goexit()
	}
	panic("boom")
}

// order gives an order, and has it carried out at once.
func (h *history) order() {
	if h.random.IntN(2) == 0 {
		h.control.Reset()
		h.naive.enter(circuitbreaker.Closed)
	} else if h.naive.state != circuitbreaker.Isolated {
		h.control.Isolate()
		h.naive.enter(circuitbreaker.Isolated)
	}
	require.Equal(h.t, h.naive.state, h.circuit.State())
	h.start()
}
