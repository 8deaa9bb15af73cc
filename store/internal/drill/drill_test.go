package drill

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/storetest"
)

// inMemory is a store for drills of one process.
func inMemory() Subject {
	places := map[string]*storetest.Memory{}
	return Subject{
		Open: func(place string) (backend.Backend, func(), error) { return places[place], func() {}, nil },
		Place: func(testing.TB) string {
			place := name("place")
			places[place] = storetest.NewMemory()
			return place
		},
	}
}

func TestDrillsOfOneProcess(t *testing.T) {
	s := inMemory()
	ReleaseWakes(t, s, true)
	CallsOfManyWaiters(t, s)
	CallsOfManyHolders(t, s)
	NewLimits(t, s)
	NewLimitsOfKeys(t, s, true)
	NewLimitsOfKeys(t, s, false)
	RejectedChain(t, s, s.Place(t), s.Place(t))
}

func TestMostHeld(t *testing.T) {
	begun := time.Now()
	during := func(from, to, permits int) span {
		return span{from: begun.Add(time.Duration(from)), to: begun.Add(time.Duration(to)), permits: int64(permits)}
	}
	require.Zero(t, maxHeld(nil))
	require.EqualValues(t, 3, maxHeld([]span{during(1, 4, 1), during(2, 3, 2), during(4, 9, 2)}))
	require.EqualValues(t, 4, maxHeld([]span{during(1, 5, 1), during(2, 3, 2), during(4, 9, 3)}))
}

func TestWhatFailedIsFound(t *testing.T) {
	out := `--- FAIL: TestX (1.00s)
    --- FAIL: TestX/a (0.00s)
        --- FAIL: TestX/a/it_is_(sometimes)_so (0.10s)
            file.go:1: something
        --- PASS: TestX/a/other (0.10s)
    --- FAIL: TestX/b (0.00s)
`
	failed := failures(out)
	require.Equal(t, []string{"TestX/a/it_is_(sometimes)_so", "TestX/b"}, failed)
	require.Equal(t, `^(TestX)$/^(a|b)$/^(it_is_\(sometimes\)_so)$`, pattern(failed))
}
