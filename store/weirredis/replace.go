package weirredis

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/store"
)

// Replace writes next if old is what is stored.
func (b *Backend) Replace(ctx context.Context, d *store.Definition, key string, old, next store.State) (bool, error) {
	done, err := b.replace(ctx, d, key, old, next)
	if err != nil {
		return false, wrap(ctx, "replace", err)
	}
	return done, nil
}

func (b *Backend) replace(ctx context.Context, d *store.Definition, key string, old, next store.State) (bool, error) {
	p, err := b.plan(d)
	if err != nil {
		return false, err
	}
	if old.Period <= 0 {
		return false, fmt.Errorf("limiter %q: the old state has no period", d.Name)
	}
	g := old.Grid
	was := doubles(float64(g.Version), float64(g.Anchor), float64(g.Period), float64(timeOf(g, old.Line)), float64(old.Missing)) +
		gridBytes(g) + restBytes(old)
	full := doubles(float64(d.FullAt(next)))
	s := b.scripts.replace
	answer, err := b.run(ctx, &call{script: s, args: []any{"evalsha", s.sha, "1", p.key(key), was, stateBytes(next), full}})
	return answer == "1", err
}
