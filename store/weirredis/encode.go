package weirredis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A stored state begins with a header of three doubles: the version, the time when it was written, and what is missing.
// The schedule follows, as scheduleBytes writes it, and then the tail: of a bucket or fixed window the floor and what was
// refunded, as doubles, unless both are 0; of a sliding window the line and the permits of each segment, as doubles.
//
// The answer to requests is a stored state, or a header, one of the bytes below, and the data that its comment lists.
const (
	headerSize = 3 * 8

	answerOtherWindow        = 251 // of a calendar
	answerOutdatedDefinition = 252 // the header has the version of the newer definition
	answerGranted            = 253 // the number granted to each request, then the tail
	answerRejected           = 254 // the single request was rejected; the tail
	answerOutdatedState      = 255 // the stored state
)

var (
	errAnswer = errors.New("unexpected reply from the script")
	errStored = errors.New("unexpected stored state")
)

// newerVersion reads the version of a newer definition.
func newerVersion(answer string) (int64, error) {
	version := number(answer, 0)
	if version < 0 || version > maxExact {
		return 0, errStored
	}
	return version, nil
}

// readAnswer sets the answers from the reply of a script.
func (p *plan) readAnswer(batch *backend.Batch, answer string) (err error) {
	if len(answer) <= headerSize {
		return errAnswer
	}
	batch.Now = number(answer, 8)
	format, rest := answer[headerSize], answer[headerSize+1:]
	switch format {
	case answerOutdatedDefinition:
		batch.Outcome = backend.OutdatedDefinition
		batch.Version, err = newerVersion(answer)
		return err
	case answerOtherWindow:
		batch.Outcome = backend.OtherWindow
		return nil
	case answerOutdatedState:
		batch.Outcome = backend.OutdatedState
		batch.Stored, err = readState(rest)
		return err
	}
	tail, ok := p.readGranted(batch, format, rest)
	if !ok {
		return errAnswer
	}
	batch.Outcome = backend.Decided
	batch.State = rate.State{Line: p.schedule.LineAt(batch.Now), Missing: number(answer, 16)}
	if err = readTail(&batch.State, &p.schedule, tail); len(batch.State.Segments) > 0 { // a calendar can be in the next window
		batch.State.Line = max(batch.State.Line, batch.State.Segments[len(batch.State.Segments)-1].Line)
	}
	return err
}

// readGranted sets Granted, and returns the tail.
func (p *plan) readGranted(batch *backend.Batch, format byte, rest string) (tail string, ok bool) {
	if len(batch.Granted) != len(batch.Requests) {
		batch.Granted = make([]int64, len(batch.Requests))
	}
	switch format {
	case answerGranted:
		size := 8 * len(batch.Requests)
		if len(rest) < size {
			return "", false
		}
		for i := range batch.Granted {
			batch.Granted[i] = number(rest, 8*i)
		}
		return rest[size:], true
	case answerRejected:
		batch.Granted[0] = backend.Rejected
		return rest, true
	}
	// Otherwise the answer is the new state: all permits of a single take were granted.
	size := len(p.stored) - 1 // without its first byte, which is format
	if len(rest) < size {
		return "", false
	}
	batch.Granted[0] = batch.Requests[0].Max
	return rest[size:], true
}

// scheduleBytes returns the schedule of a state, without its version.
func scheduleBytes(g *rate.Schedule, version int64) string {
	b := []byte{byte(g.Kind)}
	b = binary.AppendVarint(b, g.Anchor-version) // mostly 0
	b = binary.AppendVarint(b, g.Period)
	b = binary.AppendVarint(b, g.Refill)
	b = binary.AppendVarint(b, g.Segments)
	return string(b)
}

// readSchedule reads what scheduleBytes has written, and returns what follows.
func readSchedule(version int64, s string) (g rate.Schedule, tail string, err error) {
	r := strings.NewReader(s)
	kind, err := r.ReadByte()
	var n [4]int64
	for i := range n {
		if err == nil {
			n[i], err = binary.ReadVarint(r)
		}
	}
	g = rate.Schedule{Kind: rate.Kind(kind), Anchor: n[0] + version, Period: n[1], Refill: n[2], Segments: n[3]}
	if err != nil || !g.Usable() {
		return rate.Schedule{}, "", errStored
	}
	return g, s[len(s)-r.Len():], nil
}

// readState reads a stored state of any definition.
func readState(s string) (*backend.State, error) {
	if len(s) <= headerSize {
		return nil, fmt.Errorf("%w: it is too short", errStored)
	}
	state := &backend.State{Version: number(s, 0)}
	g, tail, err := readSchedule(state.Version, s[headerSize:])
	if err != nil {
		return nil, err
	}
	state.Schedule, state.Line, state.Missing = g, g.LineAt(number(s, 8)), number(s, 16)
	return state, readTail(&state.State, &g, tail)
}

// readTail reads what follows the schedule.
func readTail(s *rate.State, g *rate.Schedule, tail string) error {
	switch {
	case len(tail) == 0:
		return nil
	case len(tail)%16 != 0 || g.Segments == 0 && len(tail) != 16:
		return fmt.Errorf("%w: %d bytes follow the schedule", errStored, len(tail))
	case g.Segments == 0:
		s.Floor, s.Refunded = number(tail, 0), number(tail, 8)
		return nil
	}
	s.Segments = make([]rate.Segment, len(tail)/16)
	for i := range s.Segments {
		line := number(tail, 16*i)
		s.Segments[i] = rate.Segment{Line: line, Serial: line, Permits: number(tail, 16*i+8)}
	}
	return nil
}

// stateBytes returns a state as the scripts store it, or "" if it is full, which is not stored.
func stateBytes(s *backend.State) string {
	if s.Missing <= 0 && s.Refunded <= 0 {
		return ""
	}
	return doubles(float64(s.Version), float64(s.Schedule.TimeOf(s.Line)), float64(s.Missing)) + restBytes(s)
}

// restBytes returns what follows the header.
func restBytes(s *backend.State) string {
	var tail []float64
	if s.Floor > 0 || s.Refunded > 0 {
		tail = []float64{float64(s.Floor), float64(s.Refunded)}
	}
	for _, t := range s.Segments {
		tail = append(tail, float64(t.Line), float64(t.Permits))
	}
	return scheduleBytes(&s.Schedule, s.Version) + doubles(tail...)
}

// maxExact is the largest number up to which all whole numbers are exact as doubles. Scripts compute with doubles.
const maxExact = 1 << 53

// doubles returns numbers as scripts read them.
func doubles(numbers ...float64) string {
	b := make([]byte, 0, 8*len(numbers))
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(n))
	}
	return string(b)
}

// number reads a number that doubles has written. It returns -1 if the bytes are no number or one out of range.
func number(s string, at int) int64 {
	n := math.Float64frombits(binary.LittleEndian.Uint64([]byte(s[at : at+8])))
	if !(n >= -1<<62 && n <= 1<<62) {
		return -1
	}
	return int64(n)
}
