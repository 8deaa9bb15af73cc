package weirredis

import (
	"github.com/weir-go/weir/store/backend"
)

// read takes the answers out of what a script has answered.
func (p *plan) read(batch *backend.Batch, answer string) error {
	if len(answer) == 8 {
		version, err := newerVersion(answer)
		batch.Outcome, batch.State = backend.OutdatedDefinition, backend.State{Schedule: backend.Schedule{Version: version}}
		return err
	}
	if len(answer) <= headerSize {
		return errAnswer
	}
	batch.Now = number(answer, 8)
	mark, rest := answer[headerSize], answer[headerSize+1:]
	if mark == answerOld {
		state, err := readState(rest)
		batch.Outcome, batch.State = backend.OutdatedState, state
		return err
	}
	rest, ok := p.readGranted(batch, mark, rest)
	if !ok {
		return errAnswer
	}
	batch.Outcome = backend.Decided
	batch.State = backend.State{Schedule: p.grid, Tick: lineAt(p.grid, batch.Now), Missing: number(answer, 16)}
	return readRest(&batch.State, rest)
}

// readGranted fills in what was granted, and returns what follows in the answer.
func (p *plan) readGranted(batch *backend.Batch, mark byte, rest string) (after string, ok bool) {
	if len(batch.Granted) != len(batch.Requests) {
		batch.Granted = make([]int64, len(batch.Requests))
	}
	switch mark {
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
	size := len(p.stored) - 1 // mark was the first byte of it
	if len(rest) < size {
		return "", false
	}
	batch.Granted[0] = batch.Requests[0].Max
	return rest[size:], true
}
