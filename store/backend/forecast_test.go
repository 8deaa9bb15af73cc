package backend

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// anyState is a state as random asks at random times leave it, and the time.
func anyState(random *rand.Rand, d *Definition) (State, int64) {
	now := random.Int64N(100)
	s := d.InitialState(now)
	granted := []int64{0}
	for range 1 + random.IntN(6) {
		now += random.Int64N(15)
		a := Request{Min: 1, Max: 1 + random.Int64N(d.Permits)}
		if random.IntN(5) == 0 {
			a.Op = OpCharge
		}
		s = d.Decide(s, now, []Request{a}, granted)
	}
	return s, now
}

// Wait is exact: so much later it is granted, and a microsecond sooner it is not.
func TestWait_IsExact(t *testing.T) {
	for seed := range uint64(3_000) {
		random := rand.New(rand.NewPCG(seed, 1))
		for _, l := range kindsOfThree(random) {
			d := &Definition{Limits: l, Version: 1, Anchor: random.Int64N(50) - 25}
			s, now := anyState(random, d)
			n := random.Int64N(l.Permits + 1)
			wait := d.Wait(s, now, n)
			granted := []int64{0}
			d.Decide(s, now+wait, []Request{{Min: n, Max: n}}, granted)
			require.Equal(t, n, granted[0], "%+v: %d after %d", s, n, wait)
			if wait > 0 {
				d.Decide(s, now+wait-1, []Request{{Min: n, Max: n}}, granted)
				require.Equal(t, Rejected, granted[0], "%+v: %d after %d", s, n, wait-1)
			}
		}
	}
}

// From FullAt on a state is as if there were none, and before then it is not.
func TestFullAt_IsExact(t *testing.T) {
	for seed := range uint64(3_000) {
		random := rand.New(rand.NewPCG(seed, 2))
		for _, l := range kindsOfThree(random) {
			d := &Definition{Limits: l, Version: 1, Anchor: random.Int64N(50) - 25}
			s, now := anyState(random, d)
			full := d.FullAt(s)
			at := full + random.Int64N(30)
			require.Equal(t, d.InitialState(at), d.Advance(s, at))
			if s.Missing > 0 {
				require.Greater(t, full, now)
				require.Positive(t, d.Advance(s, full-1).Missing)
			} else {
				require.LessOrEqual(t, full, now)
			}
		}
	}
}

func TestWait_Available(t *testing.T) {
	d := &Definition{Limits: Limits{Kind: KindFixedWindow, Permits: 3, Period: 10}, Version: 1}
	s := d.InitialState(5)
	assert.Zero(t, d.Wait(s, 5, 3))
	assert.Equal(t, int64(5), d.Wait(d.Decide(s, 5, []Request{{Min: 3, Max: 3}}, []int64{0}), 5, 0), "a zero waits for one permit")
}
