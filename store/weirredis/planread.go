package weirredis

import (
	"github.com/weir-go/weir/store/backend"
)

// readAnswer sets the answers from the reply of a script.
func (p *plan) readAnswer(batch *backend.Batch, answer string) error {
	if len(answer) <= headerSize {
		return errAnswer
	}
	batch.Now = number(answer, 8)
	format, rest := answer[headerSize], answer[headerSize+1:]
	switch format {
	case answerNewer:
		version, err := newerVersion(answer)
		batch.Outcome, batch.State = backend.OutdatedDefinition, backend.State{Schedule: backend.Schedule{Version: version}}
		return err
	case answerOld:
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
	size := len(p.stored) - 1 // format was the first byte of it
	if len(rest) < size {
		return "", false, false
	}
	batch.Granted[0] = batch.Requests[0].Max
	return rest[size:], format&withFloor != 0, true
}
