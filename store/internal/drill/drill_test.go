package drill

import (
	"testing"
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
	newLimitsAtNextCall(t, s)
	newLimitsOfKeys(t, s, true)
	newLimitsOfKeys(t, s, false)
	RejectedChain(t, s, s.Place(t), s.Place(t))
	Charges(t, s)
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
