package definition

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

func bucket(permits int) rate.Limits {
	return rate.Limits{Kind: rate.TokenBucket, Permits: permits, Refill: 1, Period: time.Hour}
}

func seats(permits int) rate.Limits { return rate.Limits{Kind: rate.Concurrency, Permits: permits} }

func window(permits int) rate.Limits {
	return rate.Limits{Kind: rate.FixedWindow, Permits: permits, Period: time.Hour}
}

// A step is what an instance does one second after the step before.
type step struct {
	why        reason
	limits     rate.Limits
	made       int         // the second in which the limiter was made or ReconfigureLater was called; 0: this one
	of         rate.Limits // set, setLater: with what the limiter was made; zero: the limits
	generation int64
	knows      int // the definition that is in force there: after that step; 0: none
	forgets    bool
	override   Override

	inForce    rate.Limits // afterwards; zero: the limits
	configured rate.Limits // if there is an override
	refused    string
	err        string
}

// play returns the definitions after each step.
func play(t *testing.T, steps []step) []*backend.Definition {
	t.Helper()
	all := []*backend.Definition{nil}
	var found *backend.Definition
	begun := time.Now()
	at := func(second int) time.Time { return begun.Add(time.Duration(second) * time.Second) }
	for i, s := range steps {
		now := i + 1
		if s.forgets {
			found = nil
		}
		if s.made == 0 {
			s.made = now
		}
		if s.of.Kind == 0 {
			s.of = s.limits
		}
		f := facts{
			name: "it", made: s.of.Schedule(unit), generation: s.generation, inForce: all[s.knows], found: found,
			asked: at(now), now: int64(now) * 1e6,
		}
		if s.why == agree || s.why >= overrideOn {
			f.made = all[s.knows].Limits()
		}
		next, refused, err := f.next(&change{why: s.why, limits: s.limits, at: at(s.made), override: s.override})
		assertError(t, now, s.refused, refused)
		assertError(t, now, s.err, err)
		if next == nil {
			next = found
		} else if found != nil && next != found {
			require.GreaterOrEqual(t, next.Version, found.Version, "step %d", now)
		}
		if s.inForce.Kind == 0 {
			s.inForce = s.limits
		}
		found = next
		require.Equal(t, s.inForce.Schedule(unit), found.Limits(), "step %d", now)
		terms := termsOf(found)
		require.Equal(t, s.configured.Kind == 0, terms.Override.None(), "step %d", now)
		if s.configured.Kind != 0 {
			require.Equal(t, s.configured.Schedule(unit), terms.Configured, "step %d", now)
		}
		all = append(all, found)
	}
	return all
}

func assertError(t *testing.T, step int, want string, err error) {
	t.Helper()
	if want == "" {
		require.NoError(t, err, "step %d", step)
	} else {
		require.ErrorContains(t, err, want, "step %d", step)
	}
}

const (
	replaced = "newer limits have replaced the limits of this limiter"
	wasLate  = "newer limits were set after this limiter was made"
)

func sale(permits, until int) Override {
	return Override{Limits: bucket(permits), Until: int64(until) * 1e6, By: "ann", Reason: "a sale"}
}

func TestNext(t *testing.T) {
	for name, steps := range map[string][]step{
		"however late an old program starts, the limits of the newer one stay": {
			{why: firstUse, limits: bucket(1000)},
			{why: firstUse, limits: bucket(10)},
			{why: firstUse, limits: bucket(1000), made: 1, inForce: bucket(10), refused: replaced},
			{why: firstUse, limits: bucket(1000), inForce: bucket(10), refused: replaced},
			{why: firstUse, limits: bucket(20)},
		},
		"an older program that was not used before the newer one": {
			{why: firstUse, limits: bucket(10), made: 1},
			{why: firstUse, limits: bucket(77), made: -1, inForce: bucket(10), refused: wasLate},
		},
		"Reconfigure wins over limiters that were made before, and over limits that it has replaced": {
			{why: firstUse, limits: bucket(10)},
			{why: set, limits: bucket(50), of: bucket(10)},
			{why: firstUse, limits: bucket(20), made: 1, inForce: bucket(50), refused: wasLate},
			{why: firstUse, limits: bucket(10), inForce: bucket(50), refused: replaced},
			{why: firstUse, limits: bucket(30)}, // the next deployment
			{why: firstUse, limits: bucket(50), inForce: bucket(30), refused: replaced},
			{why: set, limits: bucket(10)}, // back again
		},
		"Reconfigure before the first use makes the constructor's limits old ones": {
			{why: set, limits: bucket(50), of: bucket(10)},
			{why: firstUse, limits: bucket(10), inForce: bucket(50), refused: replaced},
			{why: set, limits: bucket(50), of: bucket(20)}, // also with the limits in force
			{why: firstUse, limits: bucket(20), inForce: bucket(50), refused: replaced},
			{why: firstUse, limits: bucket(30)},
		},
		"a larger generation wins over Reconfigure, also with limits that were in force before": {
			{why: firstUse, limits: bucket(1000)},
			{why: firstUse, limits: bucket(10), generation: 1},
			{why: firstUse, limits: bucket(77), inForce: bucket(10), refused: "generation 1 is in force, and this limiter is of generation 0"},
			{why: set, limits: bucket(50), of: bucket(1000)},
			{why: firstUse, limits: bucket(78), inForce: bucket(50), refused: "generation 1"},
			{why: firstUse, limits: bucket(1000), generation: 2},
			{why: firstUse, limits: bucket(10), generation: 1, inForce: bucket(1000), refused: "generation 2"},
			{why: firstUse, limits: bucket(1000), generation: 3},
			{why: firstUse, limits: bucket(10), generation: 2, inForce: bucket(1000), refused: "generation 3"},
		},
		"ReconfigureLater is as of the time of the call": {
			{why: firstUse, limits: bucket(5)},
			{why: setLater, limits: bucket(7), of: bucket(5)},
			{why: set, limits: bucket(50), of: bucket(5)},
			{why: setLater, limits: bucket(7), of: bucket(5), made: 2, inForce: bucket(50), refused: "newer limits were set after ReconfigureLater was called"},
			{why: setLater, limits: bucket(50), made: 2},
			{why: setLater, limits: bucket(7), of: bucket(5)},
		},
		"the store has lost the limits, and an older program sets its own": {
			{why: firstUse, limits: bucket(10)},
			{why: firstUse, limits: bucket(50)},
			{why: firstUse, limits: bucket(7), made: 1, forgets: true},
			{why: agree, knows: 2, inForce: bucket(50)},
			{why: firstUse, limits: bucket(7), inForce: bucket(50), refused: replaced},
			{why: agree, knows: 3, inForce: bucket(50)},
			{why: agree, knows: 1, inForce: bucket(50)},
		},
		"an override of the limits of an older program is kept": {
			{why: firstUse, limits: bucket(10)},
			{why: firstUse, limits: bucket(50)},
			{why: firstUse, limits: bucket(7), made: 1, forgets: true},
			{why: overrideOn, override: sale(99, 90), knows: 3, inForce: bucket(99), configured: bucket(7)},
			{why: agree, knows: 2, inForce: bucket(99), configured: bucket(50)},
		},
		"the store has lost the limits, and a newer program sets its own": {
			{why: firstUse, limits: bucket(10)},
			{why: firstUse, limits: bucket(30), forgets: true},
			{why: agree, knows: 1, inForce: bucket(30)},
		},
		"the store has lost the limits, and nothing else": {
			{why: set, limits: bucket(50), of: bucket(10)},
			{why: agree, knows: 1, forgets: true, inForce: bucket(50)},
			{why: firstUse, limits: bucket(10), inForce: bucket(50), refused: replaced},
		},
		"a concurrency limiter and another kind with one name": {
			{why: firstUse, limits: bucket(10)},
			{why: firstUse, limits: window(5)}, // the last one decides
			{why: firstUse, limits: seats(5), made: 1, inForce: window(5), err: "is a concurrency here and a fixed_window in the store"},
			{why: firstUse, limits: seats(2)},
			{why: agree, knows: 2, inForce: seats(2), err: "is a fixed_window here and a concurrency in the store"},
			{why: set, limits: bucket(10)},
		},
		"what is set during an override comes into force at its end": {
			{why: firstUse, limits: bucket(10)},
			{why: overrideOn, override: sale(99, 9), knows: 1, inForce: bucket(99), configured: bucket(10)},
			{why: set, limits: bucket(20), of: bucket(10), inForce: bucket(99), configured: bucket(20)},
			{why: firstUse, limits: bucket(10), inForce: bucket(99), configured: bucket(20), refused: replaced},
			{why: firstUse, limits: bucket(99), inForce: bucket(99), configured: bucket(99)},
			{why: firstUse, limits: bucket(50), inForce: bucket(99), configured: bucket(50)},
			{why: agree, knows: 6, forgets: true, inForce: bucket(99), configured: bucket(50)},
			{why: agree, knows: 7, inForce: bucket(99), configured: bucket(50)},
			{why: agree, knows: 7, inForce: bucket(50)}, // the time is over
		},
		"an override ends": {
			{why: firstUse, limits: bucket(10)},
			{why: overrideEnds, knows: 1, inForce: bucket(10), err: ErrNotOverridden.Error()},
			{why: overrideOn, override: sale(99, 3), knows: 1, inForce: bucket(10), err: "Until must be in the future"},
			{why: overrideOn, override: sale(99, 90), knows: 1, inForce: bucket(99), configured: bucket(10)},
			{why: overrideEnds, knows: 4, inForce: bucket(10)},
			{why: overrideOn, override: sale(99, 90), knows: 5, inForce: bucket(99), configured: bucket(10)},
			{why: set, limits: window(5)}, // the limits of a bucket mean nothing to a window
			{why: overrideOn, override: sale(99, 90), knows: 7, inForce: window(5), err: "Options must be of the kind that the limiter has in the store, fixed_window"},
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, steps) })
	}
}

// However often Reconfigure is called, an instance that is started again does not set the program's limits again.
func TestNext_PastIsBounded(t *testing.T) {
	steps := []step{{why: firstUse, limits: bucket(10)}}
	for i := range 100 {
		steps = append(steps, step{why: set, limits: bucket(1000 + i), of: bucket(10)})
	}
	all := play(t, append(steps,
		step{why: firstUse, limits: bucket(10), inForce: bucket(1099), refused: replaced},
		step{why: firstUse, limits: bucket(1090), inForce: bucket(1099), refused: replaced},
	))
	assert.Less(t, len(all[len(all)-1].Terms), 300)
}

// What is set again makes no new version, to which the states of all keys would be converted.
func TestNext_Version(t *testing.T) {
	all := play(t, []step{
		{why: firstUse, limits: bucket(10)},
		{why: set, limits: bucket(10), of: bucket(20)},
		{why: set, limits: bucket(10), of: bucket(30)},
		{why: set, limits: bucket(10), of: bucket(20)},
		{why: firstUse, limits: bucket(10), generation: 1},
		{why: firstUse, limits: bucket(10), generation: 1},
		{why: overrideOn, override: sale(10, 90), knows: 1, inForce: bucket(10), configured: bucket(10)},
		{why: overrideOn, override: sale(10, 91), knows: 1, inForce: bucket(10), configured: bucket(10)},
		{why: set, limits: bucket(30), inForce: bucket(10), configured: bucket(30)},
	})
	for i, version := range []int64{1e6, 2e6, 3e6, 3e6, 5e6, 5e6, 7e6, 8e6, 9e6} {
		assert.Equal(t, version, all[i+1].Version, "step %d", i+1)
	}
	assert.NotEqual(t, all[3].Terms, all[4].Terms)
	assert.Same(t, all[5], all[6])
}

// A version is newer than all that were seen, even if the store's clock has stepped back and the store has lost everything.
func TestNext_NewerThanWhatWasSeen(t *testing.T) {
	ch := &change{why: firstUse, limits: bucket(10)}
	f := facts{name: "it", made: bucket(10).Schedule(unit), now: 5, seen: 70}
	first, _, _ := f.next(ch)
	assert.EqualValues(t, 71, first.Version)
	f = facts{name: "it", made: f.made, now: 5, seen: 80, found: first, inForce: first}
	second, _, _ := f.next(&change{})
	assert.EqualValues(t, 81, second.Version)
	assert.Equal(t, first.Terms, second.Terms)
	f.found, f.inForce = first, second
	third, _, _ := f.next(&change{})
	assert.Same(t, second, third, "the store has lost the second")
}

// Text that is not of this package is a definition without an override.
func TestTermsOf_OtherText(t *testing.T) {
	d := backend.NewDefinition("it", bucket(10).Schedule(unit), 5)
	for _, text := range []string{"", "{", `{"override":7}`, "null"} {
		d.Terms = text
		assert.Equal(t, terms{Configured: d.Limits()}, termsOf(d))
	}
	text, err := json.Marshal(terms{Configured: d.Limits(), Override: sale(7, 1), Past: "01234567", Made: 3, Generation: 4})
	require.NoError(t, err)
	d.Terms = string(text)
	assert.Equal(t, sale(7, 1), termsOf(d).Override)
}
