package calls

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// repair gets the definition, or converts the state, for lack of which the groups were not decided, and sends their calls
// again. It has a goroutine of its own, so that calls about other keys do not wait.
func (c *Client) repair(groups []*group) {
	c.Begin()
	go func() {
		defer c.End()
		c.awaitDefinitions(groups)
		c.convert(groups)
		var again []*Call
		var pause time.Duration
		for _, g := range groups {
			for _, q := range g.calls {
				if wait, ok := c.repaired(q, g.err); ok {
					again, pause = append(again, q), max(pause, wait)
				}
			}
		}
		if pause > 0 {
			c.Sleep(pause)
		}
		for _, q := range again {
			c.send(q)
		}
	}()
}

// awaitDefinitions waits for all definitions together: if many limiters of a far store are reconfigured at once, one load
// after another takes longer than the timeout.
func (c *Client) awaitDefinitions(groups []*group) {
	var loads sync.WaitGroup
	for _, g := range groups {
		if outcome, version, _ := g.outcome(); outcome == 0 || outcome == backend.OutdatedDefinition {
			loads.Go(func() { g.err = g.calls[0].Limiter.AwaitDefinition(version) })
		}
	}
	loads.Wait()
}

// convert replaces the outdated states in one round trip.
func (c *Client) convert(groups []*group) {
	var replacements []*backend.Replacement
	var outdated []*group // the group of each replacement
	for _, g := range groups {
		if b := &g.batch; b.Outcome == backend.OutdatedState {
			replacements = append(replacements, &backend.Replacement{
				Definition: b.Definition, Key: b.Key, Old: *b.Stored, Next: b.Definition.Convert(*b.Stored),
			})
			outdated = append(outdated, g)
		}
	}
	if len(replacements) == 0 {
		return
	}
	sh := outdated[0].calls[0].shard
	begun := sh.epoch()
	// After a timeout, the backend can still write to replacements. Then answers is nil.
	answers, err := within(c, func(ctx context.Context) ([]*backend.Replacement, error) {
		return replacements, c.backend.Replace(ctx, replacements)
	})
	var o outcomes
	for i, g := range outdated {
		if g.err = err; err != nil {
			continue
		}
		if o.add(answers[i].Outcome, answers[i].Err); answers[i].Outcome != backend.Decided {
			g.err = reasonOf(answers[i].Err)
		}
	}
	sh.record(Decide, begun, o.result(err))
}

const (
	// immediateAttempts is how many attempts follow without a pause. One Reconfigure causes one or two.
	immediateAttempts = 4
	// maxPause is the longest pause before a later attempt.
	maxPause = 5 * time.Millisecond
	// backgroundTimeouts is for how many times the timeout a call without a caller is sent again: a storm of changes has
	// an end, but a store that never accepts the definition it has itself returned must not be asked forever.
	backgroundTimeouts = 10
)

// repaired reports whether q is to be sent again, and after which pause. If err is not nil, q fails with it. But if err is a
// timeout, a call that no caller waits for is sent again: while limits change all the time, a load can take longer than the
// timeout, and the permits that it gives back would be lost.
func (c *Client) repaired(q *Call, err error) (pause time.Duration, ok bool) {
	within := c.o.Timeout
	if q.OnAnswer != nil {
		within *= backgroundTimeouts
	}
	if q.attempts++; q.attempts == 1 {
		q.repairs = time.Now()
	}
	switch late := time.Since(q.repairs) >= within; {
	case q.dropped(c.o.Timeout):
		return 0, false
	case err != nil && (q.OnAnswer == nil || !errors.Is(err, errTimeout)):
	case late:
		err = errReconfiguring
	case q.attempts > immediateAttempts:
		return rand.N(maxPause), true
	default:
		return 0, true
	}
	q.fail(err, false)
	return 0, false
}
