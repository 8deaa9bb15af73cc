package weirredis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/store"
)

// Load returns the definition of a limiter, or nil if there is none, and the time of the server that has it. While that
// server of a Cluster is away, Load returns a copy from another server.
func (b *Backend) Load(ctx context.Context, name string) (*store.Definition, int64, error) {
	l := b.places(name)
	d, now, err := b.loadInTime(ctx, l)
	if err != nil && !ofTheKey(err) && ctx.Err() == nil {
		for _, p := range b.elsewhere(l) {
			if copied, at, err := b.loadAt(ctx, name, p); err == nil && copied != nil {
				return copied, at, nil
			}
		}
	}
	if err == nil && d != nil {
		b.copyAgain(ctx, l, d)
	}
	return d, now, err
}

// loadInTime loads the definition itself, and leaves half of the time for the copies where there are some.
func (b *Backend) loadInTime(ctx context.Context, l *limiterPlaces) (*store.Definition, int64, error) {
	if end, ok := ctx.Deadline(); ok && b.cluster != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	return b.loadAt(ctx, l.name, l.of(""))
}

func (b *Backend) loadAt(ctx context.Context, name string, p *place) (*store.Definition, int64, error) {
	s := b.scripts.load
	answer, err := b.run(ctx, &call{script: s, args: []any{"evalsha", s.sha, "1", p.def}})
	if err != nil {
		return nil, 0, wrapOfDefinition(ctx, "load", err)
	}
	if len(answer) < 8 {
		return nil, 0, wrapOfDefinition(ctx, "load", errAnswer)
	}
	now := number(answer, 0)
	if answer = answer[8:]; answer == "" {
		return nil, now, nil
	}
	if len(answer) < 8 {
		return nil, 0, ofDefinition(fmt.Errorf("weirredis: load: the definition of %q is too short", name))
	}
	d := &store.Definition{}
	if err := json.Unmarshal([]byte(answer[8:]), d); err != nil {
		return nil, 0, ofDefinition(fmt.Errorf("weirredis: load: the definition of %q: %w", name, err))
	}
	d.Name = name // JSON cannot say every byte
	return d, now, nil
}

// wrapOfDefinition is wrap for an error of the script that reads or writes a definition.
func wrapOfDefinition(ctx context.Context, what string, err error) error {
	if ofTheKey(err) {
		return ofDefinition(wrap(ctx, what, err))
	}
	return wrap(ctx, what, err)
}

// Define makes next the definition of its name if the one in force has the version old, and tells all who listen.
func (b *Backend) Define(ctx context.Context, old int64, next *store.Definition) (bool, error) {
	if next == nil {
		return false, ofDefinition(errors.New("weirredis: define: no definition"))
	}
	if next.Version <= 0 || next.Version > exact {
		return false, ofDefinition(fmt.Errorf("weirredis: define: limiter %q: %d is not a version", next.Name, next.Version))
	}
	text, err := json.Marshal(next)
	if err != nil {
		return false, ofDefinition(fmt.Errorf("weirredis: define: limiter %q: %w", next.Name, err))
	}
	s := b.scripts.define
	answer, err := b.run(ctx, &call{script: s, args: []any{
		"evalsha", s.sha, "1", b.names.definition(next.Name),
		doubles(float64(old)), doubles(float64(next.Version)) + string(text), b.names.channel(),
	}})
	if err != nil {
		return false, wrapOfDefinition(ctx, "define", err)
	}
	if answer != "1" {
		return false, nil
	}
	l := b.places(next.Name)
	if !b.copyTo(ctx, l, next.Version, text) {
		b.uncopied.store(next.Name, next.Version, mostPlaces)
	}
	return true, nil
}

// copyTo tells all places of a limiter of its definition, in one round trip. It reports whether all of them have
// heard: one that is on a server that is away cannot, and decides nothing until it is back.
func (b *Backend) copyTo(ctx context.Context, l *limiterPlaces, version int64, text []byte) bool {
	if end, ok := ctx.Deadline(); ok { // a server that does not answer must not make of a success a timeout
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)*3/4)
		defer cancel()
	}
	s := b.scripts.copy
	var copied any = doubles(float64(version)) + string(text)
	calls := make([]call, 0, placesOf)
	for i := range placesOf {
		if i != placeOf("") {
			calls = append(calls, call{script: s, args: []any{"evalsha", s.sha, "1", l.at(i).def, copied}})
		}
	}
	if b.runAll(ctx, calls) != nil {
		return false
	}
	for i := range calls {
		if calls[i].cmd.Err() != nil {
			return false
		}
	}
	return true
}

// copyAgain tells the places of a limiter that could not be told when this process has defined it.
func (b *Backend) copyAgain(ctx context.Context, l *limiterPlaces, d *store.Definition) {
	version, ok := b.uncopied.load(l.name)
	if !ok || version > d.Version {
		return
	}
	if text, err := json.Marshal(d); err == nil && b.copyTo(ctx, l, d.Version, text) {
		b.uncopied.m.CompareAndDelete(l.name, version)
	}
}
