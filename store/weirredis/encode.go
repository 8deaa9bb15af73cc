package weirredis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-go/weir/store/backend"
)

// A stored state is three doubles: the version, the time when it was written, what is missing. Then the
// grid as gridBytes writes it, of which the first byte is the kind. Then of a bucket held as a double if it
// is not 0, of a window for each segment its line and its permits as doubles.
//
// The answer to asks is such a state, or one in which another byte stands in place of the grid, with what
// follows there after it.
const (
	headerSize = 3 * 8

	answerGranted  = 253 // the numbers granted; then what is held or taken
	answerRejected = 254 // of one Take: what is held or taken
	answerOld      = 255 // the state that is stored
)

var errAnswer = errors.New("the answer is not to be understood")

var errStored = errors.New("the stored state is not to be understood")

// newerVersion reads what scripts answer that find a state of a newer definition.
func newerVersion(answer string) (int64, error) {
	version := number(answer, 0)
	if version < 0 || version > exact {
		return 0, errStored
	}
	return version, nil
}

// gridBytes is a grid without its version.
func gridBytes(g backend.Schedule) string {
	b := []byte{byte(g.Kind)}
	b = binary.AppendVarint(b, g.Anchor-g.Version) // mostly 0
	b = binary.AppendVarint(b, g.Period)
	b = binary.AppendVarint(b, g.Refill)
	b = binary.AppendVarint(b, g.Segments)
	return string(b)
}

// readGrid reads what gridBytes has written, and returns what follows.
func readGrid(version int64, s string) (backend.Schedule, string, error) {
	r := strings.NewReader(s)
	kind, err := r.ReadByte()
	var n [4]int64
	for i := range n {
		if err == nil {
			n[i], err = binary.ReadVarint(r)
		}
	}
	if err != nil || n[1] <= 0 || kind < byte(backend.KindTokenBucket) || kind > byte(backend.KindSlidingWindow) {
		return backend.Schedule{}, "", errStored
	}
	g := backend.Schedule{
		Version: version, Kind: backend.Kind(kind),
		Anchor: n[0] + version, Period: n[1], Refill: n[2], Segments: n[3],
	}
	return g, s[len(s)-r.Len():], nil
}

// readState reads a stored state of whatever definition.
func readState(s string) (backend.State, error) {
	if len(s) <= headerSize {
		return backend.State{}, fmt.Errorf("%w: it is too short", errStored)
	}
	g, rest, err := readGrid(number(s, 0), s[headerSize:])
	if err != nil {
		return backend.State{}, err
	}
	state := backend.State{Schedule: g, Tick: lineAt(g, number(s, 8)), Missing: number(s, 16)}
	return state, readRest(&state, rest)
}

// readRest reads what follows the grid.
func readRest(s *backend.State, rest string) error {
	if rest == "" {
		return nil
	}
	if s.Kind != backend.KindSlidingWindow {
		if len(rest) != 8 {
			return fmt.Errorf("%w: it has %d bytes too many", errStored, len(rest)-8)
		}
		s.RefundFloor = number(rest, 0)
		return nil
	}
	if len(rest)%16 != 0 {
		return fmt.Errorf("%w: it has an incomplete segment", errStored)
	}
	s.Taken = make([]backend.Segment, len(rest)/16)
	for i := range s.Taken {
		s.Taken[i] = backend.Segment{Tick: number(rest, 16*i), Permits: number(rest, 16*i+8)}
	}
	return nil
}

// stateBytes is a state as it is stored, "" if it is full, which is not stored. The scripts write the same.
func stateBytes(s backend.State) string {
	if s.Missing <= 0 {
		return ""
	}
	return doubles(float64(s.Version), float64(timeOf(s.Schedule, s.Tick)), float64(s.Missing)) + gridBytes(s.Schedule) + restBytes(s)
}

func restBytes(s backend.State) string {
	if s.Kind != backend.KindSlidingWindow {
		if s.RefundFloor <= 0 {
			return ""
		}
		return doubles(float64(s.RefundFloor))
	}
	numbers := make([]float64, 0, 2*len(s.Taken))
	for _, t := range s.Taken {
		numbers = append(numbers, float64(t.Tick), float64(t.Permits))
	}
	return doubles(numbers...)
}

// lineAt is the last line of a grid at the moment t.
func lineAt(g backend.Schedule, t int64) int64 {
	line := (t - g.Anchor) / g.Period
	if (t-g.Anchor)%g.Period < 0 {
		line--
	}
	return line
}

func timeOf(g backend.Schedule, line int64) int64 { return g.Anchor + line*g.Period }
