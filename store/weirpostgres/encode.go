package weirpostgres

import (
	"crypto/sha256"
	"errors"

	"github.com/weir-go/weir/store/backend"
)

// maxKey is the length of the longest key that is stored unchanged. Of a longer key, the first maxKey bytes and a digest
// of the whole key are stored. Together they are longer than maxKey, so that they differ from every key that is stored
// unchanged.
const maxKey = 1000

// keyBytes returns a key as it is stored. It is never nil, which would be null.
func keyBytes(key string) []byte {
	if len(key) <= maxKey {
		return []byte(key)
	}
	digest := sha256.Sum256([]byte(key))
	return append([]byte(key[:maxKey]), digest[:]...)
}

// How many numbers the arguments and the answers of the function decide have.
const (
	batchNumbers    = 9  // before the first request
	requestNumbers  = 5  // of each request
	decidedNumbers  = 5  // of an answer, before what was granted
	oldStateNumbers = 11 // of the answer with a state of an older definition, before what was taken
)

// The flags of a request, added to its Op.
const (
	flagIfPrevious = 4
	flagBlock      = 8
)

// appendBatch appends the arguments of the function decide, apart from the key.
func appendBatch(n []int64, b *backend.Batch, async, readFirst bool) []int64 {
	d := b.Definition
	n = append(n, bit(async), bit(readFirst), d.Version, int64(d.Kind), d.Permits, d.Anchor, d.Period, d.Refill, d.Segments)
	for _, r := range b.Requests {
		op := int64(r.Op)
		if r.IfPrevious {
			op |= flagIfPrevious
		}
		if r.Block && r.Op == backend.OpTake {
			op |= flagBlock
		}
		n = append(n, op, r.Min, r.Max, bounded(r.Receipt.Tick), bounded(r.Receipt.Missing))
	}
	return n
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// bounded limits a number to a range in which the server can add and subtract without overflow. Ticks are far inside the
// range.
func bounded(n int64) int64 { return min(max(n, -1<<60), 1<<60) }

var errAnswer = errors.New("unexpected reply: the schema has other functions than this program expects")

// readAnswer sets the answers from what the function decide has returned.
func readAnswer(b *backend.Batch, n []int64) error {
	if len(n) < 3 {
		return errAnswer
	}
	b.Now, b.State, b.Granted = n[1], backend.State{}, nil
	switch outcome := backend.Outcome(n[0]); {
	case outcome == backend.Decided && len(n) >= decidedNumbers+len(b.Requests):
		b.State = backend.State{Schedule: b.Definition.Schedule(), Tick: n[2], Missing: n[3], RefundFloor: n[4]}
		end := decidedNumbers + len(b.Requests)
		b.Granted, b.State.Taken = n[decidedNumbers:end:end], segments(n[end:])
	case outcome == backend.OutdatedDefinition:
		b.State.Version = n[2]
	case outcome == backend.OutdatedState && len(n) >= oldStateNumbers:
		b.State = backend.State{
			Schedule: backend.Schedule{Version: n[5], Kind: backend.Kind(n[6]), Anchor: n[7], Period: n[8], Refill: n[9], Segments: n[10]},
			Tick:     n[2], Missing: n[3], RefundFloor: n[4], Taken: segments(n[oldStateNumbers:]),
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
