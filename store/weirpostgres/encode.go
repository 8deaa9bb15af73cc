package weirpostgres

import (
	"crypto/sha256"
	"errors"

	"github.com/weir-go/weir/rate"
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
	requestNumbers  = 5  // of each request
	decidedNumbers  = 6  // of an answer, before what was granted
	oldStateNumbers = 12 // of the answer with a state of an older definition, before what was taken
)

// The flags of a request, added to its Op.
const (
	flagIfPrevious = 8
	flagBlock      = 16
)

// appendRequests appends requests as the function decide takes them.
func appendRequests(n []int64, requests []backend.Request) []int64 {
	for _, r := range requests {
		op := int64(r.Op) + bit(r.IfPrevious)*flagIfPrevious + bit(r.Block)*flagBlock
		n = append(n, op, r.Min, r.Max, bounded(r.Receipt.Line), bounded(r.Receipt.Taken))
	}
	return n
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// bounded limits a number to a range in which the server can add and subtract without overflow. Lines are far inside the
// range.
func bounded(n int64) int64 { return min(max(n, -1<<60), 1<<60) }

// undecided is the outcome of a key whose row another session has locked, or of whose definition the function take knows nothing,
// until it is sent again.
const undecided backend.Outcome = 0

var errAnswer = errors.New("unexpected reply: the schema has other functions than this program expects")

// readAnswer sets the answers from what the function decide has returned.
func readAnswer(b *backend.Batch, n []int64) error {
	if len(n) < 3 {
		return errAnswer
	}
	b.Now, b.Granted = n[1], nil
	switch outcome := backend.Outcome(n[0]); {
	case outcome == undecided || outcome == backend.OtherWindow:
	case outcome == backend.Decided && len(n) >= decidedNumbers+len(b.Requests):
		end := decidedNumbers + len(b.Requests)
		b.State, b.Granted = readState(n, n[end:]), n[decidedNumbers:end:end]
	case outcome == backend.OutdatedDefinition:
		b.Version = n[2]
	case outcome == backend.OutdatedState && len(n) >= oldStateNumbers:
		b.Stored = &backend.State{
			Version: n[6], Schedule: rate.Schedule{Kind: rate.Kind(n[7]), Anchor: n[8], Period: n[9], Refill: n[10], Segments: n[11]},
			State: readState(n, n[oldStateNumbers:]),
		}
	default:
		return errAnswer
	}
	b.Outcome = backend.Outcome(n[0])
	return nil
}

// readState reads the state in an answer.
func readState(n, taken []int64) rate.State {
	return rate.State{Line: n[2], Missing: n[3], Floor: n[4], Refunded: n[5], Segments: segments(taken)}
}

func segments(n []int64) []rate.Segment {
	if len(n) < 2 {
		return nil
	}
	taken := make([]rate.Segment, 0, len(n)/2)
	for i := 0; i+1 < len(n); i += 2 {
		taken = append(taken, rate.Segment{Line: n[i], Serial: n[i], Permits: n[i+1]})
	}
	return taken
}
