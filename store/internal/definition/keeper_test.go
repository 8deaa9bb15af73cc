package definition

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/store/backend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A place has the definition of one limiter, at a distance.
type place struct {
	mu       sync.Mutex
	d        *backend.Definition
	loads    int
	away     error
	distance time.Duration
	step     time.Duration // of the store's clock
	before   func()        // what another instance does before each call of Define; nil: nothing
}

func (p *place) locked(f func()) {
	p.mu.Lock()
	distance := p.distance
	p.mu.Unlock()
	time.Sleep(distance)
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *place) keeper(limit int) *Keeper {
	return New(bucket(limit), Host{
		Name: "it", CallTimeout: 500 * time.Millisecond, RefreshInterval: 10 * time.Second, RetryInterval: time.Second,
		Load: func() (d *backend.Definition, now int64, err error) {
			p.locked(func() { d, now, err, p.loads = p.d, time.Now().Add(p.step).UnixMicro(), p.away, p.loads+1 })
			return d, now, err
		},
		Define: func(old int64, next *backend.Definition) (done bool, err error) {
			if p.before != nil {
				p.before()
			}
			p.locked(func() {
				if done = p.d == nil && old == 0 || p.d != nil && p.d.Version == old; done {
					p.d = next
				}
			})
			return done, nil
		},
		Away: func() error { return nil }, After: time.AfterFunc,
		Changed: func(bool) {}, Settled: func() {}, Overruled: func(error) {},
	})
}

// used returns a Keeper with a definition in force for a minute.
func (p *place) used(t *testing.T) *Keeper {
	k := p.keeper(10)
	require.NoError(t, k.Await(0))
	time.Sleep(time.Minute)
	return k
}

// All who learn together of a newer version share one load, and one that puts it back if the store has lost it.
func TestAwait_IsShared(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var p place
			k := p.used(t)
			require.NoError(t, p.keeper(20).Reconfigure(bucket(20)))
			version, loads := p.d.Version, p.loads
			if lost {
				p.d = nil
			}
			p.distance = 100 * time.Millisecond
			var all sync.WaitGroup
			for range 40 {
				all.Go(func() { assert.NoError(t, k.Await(version)) })
			}
			all.Wait()
			assert.LessOrEqual(t, p.loads-loads, 2)
			assert.GreaterOrEqual(t, k.InForce().Definition.Version, version)
			assert.Equal(t, p.d, k.InForce().Definition)
		})
	}
}

// A version that no definition can have had changes nothing, and the store is not asked each time.
func TestAwait_ImpossibleVersion(t *testing.T) {
	for _, version := range []int64{8e15, 1<<63 - 1} {
		synctest.Test(t, func(t *testing.T) {
			var p place
			k := p.used(t)
			before, loads := p.d, p.loads
			for range 20 {
				require.ErrorContains(t, k.Await(version), "broken")
			}
			assert.Equal(t, loads+1, p.loads)
			assert.Same(t, before, p.d)
			require.NoError(t, k.Reconfigure(bucket(20)))
			assert.Equal(t, time.Now().UnixMicro(), p.d.Version)
		})
	}
}

// A change that others always overtake, and the changes that wait for it, end in time.
func TestReconfigure_IsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p place
		k := p.used(t)
		p.distance = 400 * time.Millisecond
		p.before = func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			d := *p.d
			d.Version++
			p.d = &d
		}
		begun := time.Now()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { assert.ErrorIs(t, k.Reconfigure(bucket(20)), errTooOften) })
		}
		all.Wait()
		assert.LessOrEqual(t, time.Since(begun), 4*time.Second)
	})
}

// A larger generation stays in force, also if it has set the limits that were in force, and an older program has loaded before
// and defines after it.
func TestAwait_LargerGenerationStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p place
		k := p.used(t)
		k.host.Changed = func(again bool) { assert.False(t, again, "the limits are the same") }
		newer, older := p.keeper(10), p.keeper(20)
		newer.host.Generation, older.host.Generation = 2, 1
		p.before = func() {
			p.before = nil
			assert.NoError(t, newer.Await(0))
		}
		require.NoError(t, older.Await(0))
		assert.Equal(t, bucket(10), older.InForce().Limits)
		<-k.Refresh()
		assert.Equal(t, p.d, k.InForce().Definition)
	})
}

// What could not be set is set as soon as that is possible, the last limits only.
func TestReconfigureLater_IsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p place
		k := p.used(t)
		p.locked(func() { p.away = errors.New("away") })
		k.ReconfigureLater(bucket(20))
		k.ReconfigureLater(bucket(30))
		time.Sleep(time.Minute)
		assert.Equal(t, bucket(10), k.InForce().Limits)
		p.locked(func() { p.away = nil })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, bucket(30), k.InForce().Limits)
		loads := p.loads
		time.Sleep(time.Hour)
		assert.Equal(t, loads, p.loads)
	})
}

// The changes of one process come into force in the order of their calls, however long their round trips take and whatever the
// store's clock does.
func TestChanges_OfOneProcessKeepTheirOrder(t *testing.T) {
	for name, second := range map[string]func(t *testing.T, p *place, k *Keeper){
		"the round trip of the first is slow": func(_ *testing.T, _ *place, k *Keeper) {
			k.ReconfigureLater(bucket(30))
		},
		"the clock steps back between them": func(_ *testing.T, p *place, k *Keeper) {
			time.Sleep(time.Minute)
			p.locked(func() { p.step = -time.Hour })
			k.ReconfigureLater(bucket(30))
		},
		"only the second waits for the store": func(t *testing.T, _ *place, k *Keeper) {
			assert.NoError(t, k.Reconfigure(bucket(30)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p place
				k := p.used(t)
				k.host.Overruled = func(err error) { t.Error(err) }
				p.distance = 300 * time.Millisecond
				k.ReconfigureLater(bucket(20))
				time.Sleep(200 * time.Millisecond)
				p.mu.Lock()
				p.distance = 0
				p.mu.Unlock()
				second(t, &p, k)
				time.Sleep(time.Minute)
				p.locked(func() { assert.EqualValues(t, 30, p.d.Permits) })
				assert.Equal(t, bucket(30), k.InForce().Limits)
			})
		})
	}
}
