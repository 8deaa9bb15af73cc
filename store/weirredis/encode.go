package weirredis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-go/weir/store/backend"
)

// A stored state begins with a header of three doubles: the version, the time when it was written, and what is missing.
// The schedule follows, as scheduleBytes writes it. Its first byte is the kind, plus withFloor if a refund floor
// follows. A bucket can have a refund floor, as a double. A sliding window has the tick and the permits of each segment,
// as doubles.
//
// The answer to requests is a stored state, or a header, one of the bytes below, and the data that its comment lists.
const (
	headerSize = 3 * 8
	withFloor  = 128

	answerOutdatedDefinition = 252 // the header has the version of the newer definition
	answerGranted            = 253 // the number granted to each request, then the refund floor or the segments
	answerRejected           = 254 // the single request was rejected; the refund floor or the segments
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
func (p *plan) readAnswer(batch *backend.Batch, answer string) error {
	if len(answer) <= headerSize {
		return errAnswer
	}
	batch.Now = number(answer, 8)
	format, rest := answer[headerSize], answer[headerSize+1:]
	switch format {
	case answerOutdatedDefinition:
		version, err := newerVersion(answer)
		batch.Outcome, batch.State = backend.OutdatedDefinition, backend.State{Schedule: backend.Schedule{Version: version}}
		return err
	case answerOutdatedState:
		state, err := readState(rest)
		batch.Outcome, batch.State = backend.OutdatedState, state
		return err
	}
	rest, hasFloor, ok := p.readGranted(batch, format, rest)
	if !ok {
		return errAnswer
	}
	batch.Outcome = backend.Decided
	batch.State = backend.State{Schedule: p.schedule, Tick: p.schedule.TickAt(batch.Now), Missing: number(answer, 16)}
	return readRest(&batch.State, rest, hasFloor)
}

// readGranted sets Granted, and returns what follows in the answer.
func (p *plan) readGranted(batch *backend.Batch, format byte, rest string) (after string, hasFloor, ok bool) {
	if len(batch.Granted) != len(batch.Requests) {
		batch.Granted = make([]int64, len(batch.Requests))
	}
	switch format {
	case answerGranted:
		size := 8 * len(batch.Requests)
		if len(rest) < size {
			return "", false, false
		}
		for i := range batch.Granted {
			batch.Granted[i] = number(rest, 8*i)
		}
		return rest[size:], !p.slides, true
	case answerRejected:
		batch.Granted[0] = backend.Rejected
		return rest, !p.slides, true
	}
	// Otherwise the answer is the new state: all permits of a single take were granted.
	size := len(p.stored) - 1 // without its first byte, which is format
	if len(rest) < size {
		return "", false, false
	}
	batch.Granted[0] = batch.Requests[0].Max
	return rest[size:], format&withFloor != 0, true
}

// scheduleBytes returns a schedule without its version.
func scheduleBytes(g backend.Schedule) string {
	b := []byte{byte(g.Kind)}
	b = binary.AppendVarint(b, g.Anchor-g.Version) // mostly 0
	b = binary.AppendVarint(b, g.Period)
	b = binary.AppendVarint(b, g.Refill)
	b = binary.AppendVarint(b, g.Segments)
	return string(b)
}

// readSchedule reads what scheduleBytes has written, and returns what follows, and whether that begins with a refund
// floor.
func readSchedule(version int64, s string) (schedule backend.Schedule, rest string, hasFloor bool, err error) {
	r := strings.NewReader(s)
	kind, err := r.ReadByte()
	hasFloor, kind = kind&withFloor != 0, kind&^withFloor
	var n [4]int64
	for i := range n {
		if err == nil {
			n[i], err = binary.ReadVarint(r)
		}
	}
	if err != nil || n[1] <= 0 || kind < byte(backend.KindTokenBucket) || kind > byte(backend.KindSlidingWindow) {
		return backend.Schedule{}, "", false, errStored
	}
	g := backend.Schedule{
		Version: version, Kind: backend.Kind(kind),
		Anchor: n[0] + version, Period: n[1], Refill: n[2], Segments: n[3],
	}
	return g, s[len(s)-r.Len():], hasFloor, nil
}

// readState reads a stored state of any definition.
func readState(s string) (backend.State, error) {
	if len(s) <= headerSize {
		return backend.State{}, fmt.Errorf("%w: it is too short", errStored)
	}
	g, rest, hasFloor, err := readSchedule(number(s, 0), s[headerSize:])
	if err != nil {
		return backend.State{}, err
	}
	state := backend.State{Schedule: g, Tick: g.TickAt(number(s, 8)), Missing: number(s, 16)}
	return state, readRest(&state, rest, hasFloor)
}

// readRest reads what follows the schedule.
func readRest(s *backend.State, rest string, hasFloor bool) error {
	if s.Kind != backend.KindSlidingWindow {
		switch {
		case hasFloor && len(rest) == 8:
			s.RefundFloor = number(rest, 0)
		case hasFloor || rest != "":
			return fmt.Errorf("%w: %d bytes follow the schedule", errStored, len(rest))
		}
		return nil
	}
	if hasFloor || len(rest)%16 != 0 {
		return fmt.Errorf("%w: a segment is incomplete", errStored)
	}
	if rest == "" {
		return nil
	}
	s.Taken = make([]backend.Segment, len(rest)/16)
	for i := range s.Taken {
		s.Taken[i] = backend.Segment{Tick: number(rest, 16*i), Permits: number(rest, 16*i+8)}
	}
	return nil
}

// stateBytes returns a state as the scripts store it, or "" if it is full, which is not stored.
func stateBytes(s backend.State) string {
	if s.Missing <= 0 {
		return ""
	}
	return doubles(float64(s.Version), float64(s.TickTime(s.Tick)), float64(s.Missing)) + restBytes(s)
}

// restBytes returns what follows the header.
func restBytes(s backend.State) string {
	schedule := scheduleBytes(s.Schedule)
	if s.Kind != backend.KindSlidingWindow {
		if s.RefundFloor <= 0 {
			return schedule
		}
		return string([]byte{schedule[0] | withFloor}) + schedule[1:] + doubles(float64(s.RefundFloor))
	}
	numbers := make([]float64, 0, 2*len(s.Taken))
	for _, t := range s.Taken {
		numbers = append(numbers, float64(t.Tick), float64(t.Permits))
	}
	return schedule + doubles(numbers...)
}
