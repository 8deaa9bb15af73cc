package weirpostgres

import (
	"crypto/sha256"
	"errors"

	"github.com/weir-go/weir/store/backend"
)

// maxKey is the length of the longest key that is stored as it is. A longer one is stored as its beginning and a digest
// of all of it, which together are longer than maxKey, so that no other key is stored alike.
const maxKey = 1000

// keyBytes returns a key as it is stored. It is never nil, which would be null.
func keyBytes(key string) []byte {
	if len(key) <= maxKey {
		return []byte(key)
	}
	digest := sha256.Sum256([]byte(key))
	return append([]byte(key[:maxKey]), digest[:]...)
}

const (
	header   = 9 // numbers before the first request
	perAsk   = 5
	answer   = 5  // numbers before the first answer
	oldState = 11 // numbers of a state of an older definition, before what was taken
)

// The flags of a request, added to its Op.
const (
	bitPrevious = 4
	bitLend     = 8
)

// appendBatch appends the arguments of the function decide, apart from the key.
func appendBatch(n []int64, b *backend.Batch, async, look bool) []int64 {
	d := b.Definition
	n = append(n, bit(async), bit(look), d.Version, int64(d.Kind), d.Permits, d.Anchor, d.Period, d.Refill, d.Segments)
	for _, a := range b.Requests {
		op := int64(a.Op)
		if a.IfPrevious {
			op |= bitPrevious
		}
		if a.Block && a.Op == backend.OpTake {
			op |= bitLend
		}
		n = append(n, op, a.Min, a.Max, bounded(a.Receipt.Tick), bounded(a.Receipt.Missing))
	}
	return n
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// bounded keeps a number in a range in which the server can add and subtract. No tick is near its ends.
func bounded(n int64) int64 { return min(max(n, -1<<60), 1<<60) }

var errAnswer = errors.New("unexpected reply: the functions in the schema are not those of this program")

// readAnswer sets the answers from what the function decide has returned.
func readAnswer(b *backend.Batch, n []int64) error {
	if len(n) < 3 {
		return errAnswer
	}
	b.Now, b.State, b.Granted = n[1], backend.State{}, nil
	switch outcome := backend.Outcome(n[0]); {
	case outcome == backend.Decided && len(n) >= answer+len(b.Requests):
		b.State = backend.State{Schedule: b.Definition.Schedule(), Tick: n[2], Missing: n[3], RefundFloor: n[4]}
		b.Granted = n[answer : answer+len(b.Requests) : answer+len(b.Requests)]
		b.State.Taken = segments(n[answer+len(b.Requests):])
	case outcome == backend.OutdatedDefinition:
		b.State.Version = n[2]
	case outcome == backend.OutdatedState && len(n) >= oldState:
		b.State = backend.State{
			Schedule: backend.Schedule{Version: n[5], Kind: backend.Kind(n[6]), Anchor: n[7], Period: n[8], Refill: n[9], Segments: n[10]},
			Tick:     n[2], Missing: n[3], RefundFloor: n[4], Taken: segments(n[oldState:]),
		}
	default:
		return errAnswer
	}
	b.Outcome = backend.Outcome(n[0])
	return nil
}

func segments(n []int64) []backend.Segment {
	if len(n) < 2 {
		return nil
	}
	taken := make([]backend.Segment, 0, len(n)/2)
	for i := 0; i+1 < len(n); i += 2 {
		taken = append(taken, backend.Segment{Tick: n[i], Permits: n[i+1]})
	}
	return taken
}

// states are the arguments of the statement replace: the numbers and the taken permits of all states, and from where to
// where those of each are, from 1.
type states struct {
	numbers, taken []int64
	first, last    []int32
}

func (l *states) add(s backend.State) {
	if l.taken == nil {
		l.taken = []int64{} // nil would be null
	}
	l.numbers = append(l.numbers, s.Tick, s.Missing, s.RefundFloor, s.Version, int64(s.Kind), s.Anchor, s.Period, s.Refill, s.Segments)
	l.first = append(l.first, int32(len(l.taken)+1))
	for _, t := range s.Taken {
		l.taken = append(l.taken, t.Tick, t.Permits)
	}
	l.last = append(l.last, int32(len(l.taken)))
}
