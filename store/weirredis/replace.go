package weirredis

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// Replace implements [backend.Backend].
func (b *Backend) Replace(ctx context.Context, all []*backend.Replacement) error {
	calls := make([]call, 0, len(all))
	sent := make([]*backend.Replacement, 0, len(all))
	for _, r := range all {
		c, err := b.replacement(r)
		if err != nil {
			r.Outcome, r.Err = backend.Failed, wrap(ctx, "replace", err)
			continue
		}
		calls, sent = append(calls, c), append(sent, r)
	}
	if err := b.runEach(ctx, calls); err != nil {
		return wrap(ctx, "replace", err)
	}
	for i, r := range sent {
		if err := calls[i].cmd.Err(); err != nil {
			r.Outcome, r.Err = outcomeOf(err), wrap(ctx, "replace", err)
		} else {
			r.Outcome, r.Done = backend.Decided, calls[i].cmd.Val() == "1"
		}
	}
	return nil
}

func (b *Backend) replacement(r *backend.Replacement) (call, error) {
	if err := checkDefinition(r.Definition); err != nil {
		return call{}, err
	}
	old := r.Old
	if old.Schedule.Period <= 0 {
		return call{}, fmt.Errorf("%w: limiter %q: the old state has no period", errDefinition, r.Definition.Name)
	}
	g := old.Schedule
	was := doubles(float64(old.Version), float64(g.Anchor), float64(g.Period), float64(g.TimeOf(old.Line)), float64(old.Missing)) + restBytes(&old)
	full := r.Definition.FullAt(&r.Next.State)
	if r.Next.Schedule.Kind == rate.Calendar {
		full += r.Next.Schedule.Period / 8 * 9 // as long as the scripts keep it: see calendarStatements
	}
	s := b.scripts.replace
	key := b.places(r.Definition.Name).of(r.Key).state(r.Key)
	return call{script: s, args: []any{"evalsha", s.sha, "1", key, was, stateBytes(&r.Next), doubles(float64(full))}}, nil
}
