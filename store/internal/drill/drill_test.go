package drill

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/storetest"
)

// inMemory returns a store for drills of one process.
func inMemory() Subject {
	places := map[string]*storetest.Memory{}
	return Subject{
		Open: func(place string) (backend.Backend, func(), error) { return places[place], func() {}, nil },
		Place: func(testing.TB) string {
			place := uniqueName("place")
			places[place] = storetest.NewMemory()
			return place
		},
	}
}

func TestDrillsOfOneProcess(t *testing.T) {
	s := inMemory()
	ReleaseWakes(t, s, true)
	callsOfManyWaiters(t, s)
	callsOfManyHolders(t, s)
}

func TestMaxHeld(t *testing.T) {
	begun := time.Now()
	during := func(from, to, permits int) span {
		return span{from: begun.Add(time.Duration(from)), to: begun.Add(time.Duration(to)), permits: int64(permits)}
	}
	require.Zero(t, maxHeld(nil))
	require.EqualValues(t, 3, maxHeld([]span{during(1, 4, 1), during(2, 3, 2), during(4, 9, 2)}))
	require.EqualValues(t, 4, maxHeld([]span{during(1, 5, 1), during(2, 3, 2), during(4, 9, 3)}))
}

// A distant store is a store to which each call takes a while.
type distant struct {
	*storetest.Memory
	most time.Duration
}

func (d distant) travel() { time.Sleep(randomUpTo(d.most)) }

func (d distant) Decide(ctx context.Context, all []*backend.Batch) error {
	d.travel()
	defer d.travel()
	return d.Memory.Decide(ctx, all)
}

func (d distant) Replace(ctx context.Context, all []*backend.Replacement) error {
	d.travel()
	defer d.travel()
	return d.Memory.Replace(ctx, all)
}

func (d distant) Load(ctx context.Context, name string) (*backend.Definition, int64, error) {
	d.travel()
	defer d.travel()
	return d.Memory.Load(ctx, name)
}

func (d distant) Define(ctx context.Context, old int64, next *backend.Definition) (bool, error) {
	d.travel()
	defer d.travel()
	return d.Memory.Define(ctx, old, next)
}

func TestStorm(t *testing.T) {
	for _, most := range []time.Duration{2 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond} {
		t.Run(most.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := distant{storetest.NewMemory(), most}
				Storm(t, func() (backend.Backend, func(), error) { return m, func() {}, nil }, 2*time.Second)
			})
		})
	}
}
