package weirredis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/store/backend"
)

// Load returns the definition of a limiter, or nil if there is none, and the time of the server that has it. While that
// server of a Cluster is away, Load returns a copy from another server.
func (b *Backend) Load(ctx context.Context, name string) (*backend.Definition, int64, error) {
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
		b.checkCopies(l, d)
	}
	return d, now, err
}

// loadInTime loads the definition itself, and leaves half of the time for the copies where there are some.
func (b *Backend) loadInTime(ctx context.Context, l *limiterPlaces) (*backend.Definition, int64, error) {
	if end, ok := ctx.Deadline(); ok && b.cluster != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	return b.loadAt(ctx, l.name, l.of(""))
}

func (b *Backend) loadAt(ctx context.Context, name string, p *place) (*backend.Definition, int64, error) {
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
	d := &backend.Definition{}
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
func (b *Backend) Define(ctx context.Context, old int64, next *backend.Definition) (bool, error) {
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
	if b.copyTo(ctx, l, next.Version, text) {
		l.copied.Store(&copied{next.Version, time.Now()})
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

// A copied is the version that all places of a limiter had at a moment.
type copied struct {
	version int64
	at      time.Time
}

const (
	// checkCopiesAfter is how long the process that has set a definition has to copy it. Up to twice as long at random
	// keeps instances from checking all at once.
	checkCopiesAfter = time.Second
	// checkCopiesEvery is how often a process checks copies that were right: a server may lose them later.
	checkCopiesEvery = time.Minute
	// copyTimeout bounds a check.
	copyTimeout = 2 * time.Second
)

// checkCopies checks in the background whether the servers have copies of a definition that was loaded, and copies it if
// one has not: the process that has set it may have ended, or one of the servers may have been away, before all
// places were told. It is called again with the next Load.
func (b *Backend) checkCopies(l *limiterPlaces, d *backend.Definition) {
	if c := l.copied.Load(); c != nil && c.version == d.Version && time.Since(c.at) < checkCopiesEvery {
		return
	}
	if !l.copying.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(checkCopiesAfter+rand.N(checkCopiesAfter), func() {
		defer l.copying.Store(false)
		recovered.Call(clientHooks, func() {
			ctx, cancel := context.WithTimeout(b.greeting.ctx, copyTimeout)
			defer cancel()
			begun := time.Now()
			if b.copiesHave(ctx, l, d.Version) || b.copyDefinition(ctx, l, d) {
				l.copied.Store(&copied{d.Version, begun})
			}
		})
	})
}

func (b *Backend) copyDefinition(ctx context.Context, l *limiterPlaces, d *backend.Definition) bool {
	text, err := json.Marshal(d)
	return err == nil && b.copyTo(ctx, l, d.Version, text)
}

// copiesHave reports whether each server has a copy of that version or a later one. Of each server it reads the copy
// that is written last.
func (b *Backend) copiesHave(ctx context.Context, l *limiterPlaces, version int64) bool {
	if b.cluster != nil && !b.mapped.Load() {
		return false
	}
	s := b.scripts.load
	seen := map[string]bool{}
	var calls []call
	for i := range placesOf {
		p, at := l.at(placesOf-1-i), ""
		if b.cluster != nil {
			at = b.partAt(p)
		}
		if !seen[at] {
			seen[at] = true
			calls = append(calls, call{script: s, args: []any{"evalsha", s.sha, "1", p.def}})
		}
	}
	if b.runAll(ctx, calls) != nil {
		return false
	}
	for i := range calls {
		if answer := calls[i].cmd.Val(); calls[i].cmd.Err() != nil || len(answer) < 16 || number(answer, 8) < version {
			return false
		}
	}
	return true
}
