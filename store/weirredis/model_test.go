package weirredis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testserver"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// The scripts answer as Definition.Decide does, while the clock goes on, stands still and jumps. What they do not
// write, because nothing was granted, is not in the model either.
func TestScripts_Model(t *testing.T) {
	client := connect(t, testserver.Redis(t).URL)
	b := newSteered(t, client, freshPrefix())
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 1))
		m := modelled{t: t, b: b, windowed: backend.Windowed(b), random: random, key: fmt.Sprint("k", seed)}
		m.d = randomDefinition(random)
		m.now = m.d.Version
		for range 60 {
			m.step()
		}
	}
}

// in2100 is far from what the server takes for the time, so that nothing is forgotten early.
const in2100 = 4_102_444_800_000_000

func randomDefinition(random *rand.Rand) *backend.Definition {
	d := &backend.Definition{Name: "model", Version: in2100 + random.Int64N(1000)}
	d.Anchor = d.Version - random.Int64N(20_000_000) + 10_000_000
	d.Permits = []int64{1, 3, 10, 1 << 50}[random.IntN(4)]
	d.Period = []int64{1, 7, 1000, 1_000_003, 100 * 365 * 86_400_000_000}[random.IntN(5)]
	d.Kind = []rate.Kind{rate.TokenBucket, rate.FixedWindow, rate.SlidingWindow, rate.Calendar}[random.IntN(4)]
	switch d.Kind {
	case rate.Calendar:
		every := []rate.Cycle{rate.Day, rate.Week, rate.MonthFrom(30)}[random.IntN(3)]
		l := rate.Limits{Kind: rate.Calendar, Permits: int(d.Permits), Every: every, Zone: "America/St_Johns"}
		d.Schedule = l.Schedule(time.Microsecond)
	case rate.TokenBucket:
		d.Refill = 1 + random.Int64N(d.Permits)
	case rate.SlidingWindow:
		d.Segments = 1 + random.Int64N(5)
	}
	return d
}

type modelled struct {
	t        *testing.T
	b        *steered
	windowed backend.Backend
	random   *rand.Rand
	d        *backend.Definition
	key      string
	now      int64
	stored   *rate.State
	grants   []rate.Receipt
}

func (m *modelled) step() {
	m.now = max(m.now+min(m.jump(), 1<<42), in2100-1<<40) // times above 2^53 µs are in the year 2255
	m.b.setTime(m.t, m.now)
	requests := m.asks()
	batch := &backend.Batch{Definition: m.d, Key: m.key, Requests: requests}
	require.NoError(m.t, m.windowed.Decide(m.t.Context(), []*backend.Batch{batch}))

	before := m.d.Full(m.now)
	if m.stored != nil {
		before = *m.stored
	}
	want := make([]int64, len(requests))
	after := m.d.Advanced(before, m.now) // a copy
	m.d.Decide(&after, m.now, requests, want)
	about := fmt.Sprintf("%+v at %d from %+v, asked %+v", *m.d, m.now, before, requests)
	require.Equal(m.t, backend.Decided, batch.Outcome, about)
	require.Equal(m.t, m.now, batch.Now, about)
	require.True(m.t, slices.Equal(want, batch.Granted), "%v, not %v: %s", batch.Granted, want, about)
	if after.Missing == 0 && m.d.Kind == rate.Calendar {
		after.Line = batch.State.Line // it is forgotten that it was in the next window
	}
	require.Equal(m.t, tidy(after), tidy(batch.State), about)
	if slices.ContainsFunc(want, func(n int64) bool { return n > 0 }) || after.Line < before.Line || after.Floor != m.d.Advanced(before, m.now).Floor {
		m.stored = &after
	}
	if after.Missing > 0 {
		m.grants = append(m.grants, m.d.Receipt(&after))
		m.grants = m.grants[max(0, len(m.grants)-3):]
	}
}

func tidy(s rate.State) rate.State {
	if len(s.Segments) == 0 {
		s.Segments = nil
	}
	return s
}

func (m *modelled) jump() int64 {
	switch m.random.IntN(8) {
	case 0:
		return 0
	case 1:
		return -m.random.Int64N(3*min(m.d.Period, 1<<38) + 1)
	case 2:
		return m.random.Int64N(20*m.d.Period + 1)
	default:
		return m.random.Int64N(m.d.Period + 1)
	}
}

func (m *modelled) asks() []backend.Request {
	if m.random.IntN(2) == 0 {
		n := m.amount()
		return []backend.Request{{Min: n, Max: n}}
	}
	requests := make([]backend.Request, m.random.IntN(5))
	for i := range requests {
		a := backend.Request{Op: backend.Op(m.random.IntN(5)), IfPrevious: m.random.IntN(2) == 0}
		a.Max = m.amount()
		a.Min = []int64{0, 1, a.Max}[m.random.IntN(3)]
		switch a.Op {
		case backend.OpTake:
			a.Block = m.random.IntN(3) == 0
		case backend.OpRefund, backend.OpReturnBlock:
			a.Receipt = rate.Receipt{Line: -1 << 40, Taken: 1}
			if len(m.grants) > 0 {
				a.Receipt = m.grants[m.random.IntN(len(m.grants))]
			}
		}
		requests[i] = a
	}
	return requests
}

func (m *modelled) amount() int64 {
	if m.random.IntN(8) == 0 {
		return m.d.Permits
	}
	return m.random.Int64N(min(m.d.Permits, 8)) + m.random.Int64N(2)
}
