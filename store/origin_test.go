package store_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// program makes a bucket as a program does that was deployed with those limits.
func (w *world) program(limit int, generation int64) *store.TokenBucket {
	return w.bucket(limit, 1, time.Hour, 0, &store.LimiterOptions{Generation: generation})
}

func (w *world) inForce(limit int) {
	w.Helper()
	synctest.Wait()
	d, _, err := w.Load(w.ctx, "bucket")
	require.NoError(w, err)
	require.EqualValues(w, limit, d.Permits)
}

func use(t *testing.T, l limiter.Limiter) {
	t.Helper()
	_, err := l.TryAcquire(t.Context(), 0)
	require.NoError(t, err)
	synctest.Wait()
}

// However late an old program comes, the limits of the newer one stay.
func TestFirstUse_OfAnOldProgramThatIsLate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old, late := w.program(1000, 0), w.program(1000, 0)
		use(t, old)
		w.inForce(1000)
		newer := w.program(10, 0)
		use(t, newer)
		w.inForce(10)
		require.Empty(t, w.events.of(store.Overruled))
		use(t, late)
		w.inForce(10)
		require.Len(t, w.events.of(store.Overruled), 1)
		require.Equal(t, 10, late.Options().TokenLimit)
		time.Sleep(time.Minute)
		use(t, w.program(1000, 0)) // started again in the middle of the deployment
		w.inForce(10)
		require.Len(t, w.events.of(store.Overruled), 2)
		use(t, w.program(20, 0)) // the next deployment
		w.inForce(20)
	})
}

// Nothing was in force when the newer program came first.
func TestFirstUse_OfAnOldProgramThatWasNeverUsed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old, newer := w.program(1000, 0), w.program(10, 0)
		use(t, newer)
		use(t, old)
		w.inForce(10)
		granted := 0
		for range 100 {
			granted += w.try(old, 1).Permits()
		}
		require.Equal(t, 10, granted)
	})
}

// Reconfigure is like a deployment: it wins over limiters that were made before and over limits that it has
// replaced. A program that is deployed later with limits of its own sets them.
func TestFirstUse_AndReconfigure(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, late := w.program(10, 0), w.program(20, 0)
		use(t, a)
		time.Sleep(time.Second)
		require.NoError(t, a.Reconfigure(bucketOf(50, 1, time.Hour, 0)))
		use(t, late) // was made before
		w.inForce(50)
		time.Sleep(time.Second)
		use(t, w.program(10, 0)) // an instance that is started again
		w.inForce(50)
		overruled := w.events.of(store.Overruled)
		require.Len(t, overruled, 2)
		require.ErrorContains(t, overruled[0].Err, "Reconfigure has set them since this limiter was made")
		require.ErrorContains(t, overruled[1].Err, "they have replaced these")
		use(t, w.program(30, 0)) // the next deployment
		w.inForce(30)
		time.Sleep(time.Second)
		for _, limit := range []int{10, 50} { // those before it
			use(t, w.program(limit, 0))
			w.inForce(30)
		}
		require.Len(t, w.events.of(store.Overruled), 4)
		require.NoError(t, a.Reconfigure(bucketOf(10, 1, time.Hour, 0)))
		w.inForce(10) // back again
	})
}

// However often Reconfigure is called, an instance that is started again does not bring the program's limits back.
func TestFirstUse_AfterManyReconfigures(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.program(10, 0)
		use(t, a)
		for i := range 100 {
			require.NoError(t, a.Reconfigure(bucketOf(1000+i, 1, time.Hour, 0)))
			if i%10 == 0 { // also the same limits as the program's
				require.NoError(t, a.Reconfigure(bucketOf(10, 1, time.Hour, 0)))
			}
		}
		time.Sleep(time.Second)
		use(t, w.program(10, 0))
		w.inForce(1099)
		use(t, w.program(1095, 0))
		w.inForce(1099)
		d, _, err := w.Load(w.ctx, "bucket")
		require.NoError(t, err)
		require.Less(t, len(d.Past), 160, "it is bounded")
	})
}

// A larger generation wins, over Reconfigure and with limits that were in force before.
func TestFirstUse_Generation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old := w.program(1000, 0)
		use(t, old)
		use(t, w.program(10, 1))
		w.inForce(10)
		time.Sleep(time.Second)
		use(t, w.program(77, 0))
		w.inForce(10)
		require.ErrorContains(t, w.events.of(store.Overruled)[0].Err, "generation 1")
		require.NoError(t, old.Reconfigure(bucketOf(50, 1, time.Hour, 0)))
		w.inForce(50)
		time.Sleep(time.Second)
		use(t, w.program(78, 0))
		w.inForce(50)
		use(t, w.program(1000, 2)) // rolled back
		w.inForce(1000)
		use(t, w.program(10, 1))
		w.inForce(1000)
	})
}
