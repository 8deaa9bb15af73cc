package weirredis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weir-go/weir/store"
)

// Load returns the definition of a limiter, nil if there is none, and the time of the server that has it.
func (b *Backend) Load(ctx context.Context, name string) (*store.Definition, int64, error) {
	s := b.scripts.load
	answer, err := b.run(ctx, &call{script: s, args: []any{"evalsha", s.sha, "1", b.names.definition(name)}})
	if err != nil {
		return nil, 0, wrap(ctx, "load", err)
	}
	if len(answer) < 8 {
		return nil, 0, fmt.Errorf("weirredis: load: %w", errAnswer)
	}
	now := number(answer, 0)
	if answer = answer[8:]; answer == "" {
		return nil, now, nil
	}
	if len(answer) < 8 {
		return nil, 0, fmt.Errorf("weirredis: load: the definition of %q is too short", name)
	}
	d := &store.Definition{}
	if err := json.Unmarshal([]byte(answer[8:]), d); err != nil {
		return nil, 0, fmt.Errorf("weirredis: load: the definition of %q: %w", name, err)
	}
	d.Name = name // JSON cannot say every byte
	return d, now, nil
}

// Define makes next the definition of its name if the one in force has the version old, and tells all who listen.
func (b *Backend) Define(ctx context.Context, old int64, next *store.Definition) (bool, error) {
	if next == nil {
		return false, errors.New("weirredis: define: no definition")
	}
	if next.Version <= 0 || next.Version > exact {
		return false, fmt.Errorf("weirredis: define: limiter %q: %d is not a version", next.Name, next.Version)
	}
	text, err := json.Marshal(next)
	if err != nil {
		return false, fmt.Errorf("weirredis: define: limiter %q: %w", next.Name, err)
	}
	s := b.scripts.define
	answer, err := b.run(ctx, &call{script: s, args: []any{
		"evalsha", s.sha, "1", b.names.definition(next.Name),
		doubles(float64(old)), doubles(float64(next.Version)) + string(text), b.names.channel(),
	}})
	if err != nil {
		return false, wrap(ctx, "define", err)
	}
	return answer == "1", nil
}
