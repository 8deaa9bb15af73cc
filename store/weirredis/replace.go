package weirredis

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// Replace implements [backend.Backend].
func (b *Backend) Replace(ctx context.Context, all []*backend.Replacement) error {
	all = backend.Valid(all, "weirredis: replace", func(r *backend.Replacement) error {
		err := r.Definition.Check()
		if err == nil && r.Old.Schedule.Period <= 0 {
			err = fmt.Errorf("limiter %q: the old state has no period", r.Definition.Name)
		}
		return err
	})
	calls := make([]call, len(all))
	for i, r := range all {
		calls[i] = b.replacement(r)
	}
	return runEach(ctx, b.servers, "replace", all, calls, func(r *backend.Replacement, c *call) error {
		r.Outcome, r.Done = backend.Decided, c.cmd.Val() == "1"
		return nil
	})
}

func (b *Backend) replacement(r *backend.Replacement) call {
	old := r.Old
	g := old.Schedule
	was := doubles(float64(old.Version), float64(g.Anchor), float64(g.Period), float64(g.TimeOf(old.Line)), float64(old.Missing)) + restBytes(&old)
	full := r.Definition.FullAt(&r.Next.State)
	if r.Next.Schedule.Kind == rate.Calendar {
		full += r.Next.Schedule.Period / 8 * 9 // as long as the scripts keep it: see calendarStatements
	}
	s := b.scripts.replace
	key := b.places(r.Definition.Name).of(r.Key).state(r.Key)
	return call{script: s, args: []any{"evalsha", s.sha, "1", key, was, stateBytes(&r.Next), doubles(float64(full))}}
}
