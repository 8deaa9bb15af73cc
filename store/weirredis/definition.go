package weirredis

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/store/backend"
)

// Load implements [backend.Backend]. If the server of a Cluster that has the definition is away, it returns a copy from
// another server.
func (b *Backend) Load(ctx context.Context, name string) (*backend.Definition, int64, error) {
	l := b.places(name)
	d, now, err := b.loadInTime(ctx, l)
	if home := b.serverAt(l.of("")); err != nil && home != "" && (!keyError(err) || slotError(err)) {
		for _, p := range l.onEach(b.servers) {
			if b.serverAt(p) == home {
				continue
			}
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

// loadInTime loads the definition itself. In a Cluster, it leaves half of the time for the copies.
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
		return nil, 0, definitionError(fmt.Errorf("weirredis: load: the definition of %q is too short", name))
	}
	d := &backend.Definition{}
	if err := json.Unmarshal([]byte(answer[8:]), d); err != nil {
		return nil, 0, definitionError(fmt.Errorf("weirredis: load: the definition of %q: %w", name, err))
	}
	d.Name = name // JSON has replaced bytes that are not UTF-8
	return d, now, nil
}

// wrapOfDefinition is wrap for an error of the script that reads or writes a definition.
func wrapOfDefinition(ctx context.Context, what string, err error) error {
	if keyError(err) {
		return definitionError(wrap(ctx, what, err))
	}
	return wrap(ctx, what, err)
}

// Define implements [backend.Backend].
func (b *Backend) Define(ctx context.Context, old int64, next *backend.Definition) (bool, error) {
	if next.Version <= 0 || next.Version > maxExact {
		return false, definitionError(fmt.Errorf("weirredis: define: limiter %q: %d is not a version", next.Name, next.Version))
	}
	s := b.scripts.define
	answer, err := b.run(ctx, &call{script: s, args: []any{
		"evalsha", s.sha, "1", b.names.definition(next.Name),
		doubles(float64(old)), definitionBytes(next), b.names.channel(),
	}})
	if err != nil {
		return false, wrapOfDefinition(ctx, "define", err)
	}
	if answer != "1" {
		return false, nil
	}
	if l := b.places(next.Name); !b.copyTo(ctx, l, next) {
		b.checkCopies(l, next)
	}
	return true, nil
}

// definitionBytes returns a definition as it is stored.
func definitionBytes(d *backend.Definition) string {
	text, _ := json.Marshal(d) // of plain fields: it cannot fail
	return doubles(float64(d.Version)) + string(text)
}

// copyTo writes the definition to all places of a limiter in one round trip, and reports whether all have it. A place
// on a server that is away does not get it, and decides nothing until the server is back.
func (b *Backend) copyTo(ctx context.Context, l *limiterPlaces, d *backend.Definition) bool {
	begun := time.Now()
	if end, ok := ctx.Deadline(); ok { // a server that does not answer must not turn success into a timeout
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)*3/4)
		defer cancel()
	}
	s := b.scripts.copy
	var copied any = definitionBytes(d)
	calls := make([]call, 0, numPlaces)
	for i := range numPlaces {
		if i != placeOf("") {
			calls = append(calls, call{script: s, args: []any{"evalsha", s.sha, "1", l.at(i).def, copied}})
		}
	}
	if b.runAll(ctx, calls) != nil || slices.ContainsFunc(calls, call.failed) {
		return false
	}
	l.copied.Store(&copiedVersion{d.Version, begun})
	return true
}

const (
	// checkCopiesAfter is how long the process that has set a definition has to copy it. Other processes wait up to
	// twice as long at random, so that they do not check together.
	checkCopiesAfter = time.Second
	// checkCopiesEvery is how often a process checks copies that were complete, because a server can lose them later.
	checkCopiesEvery = time.Minute
	// copyTimeout bounds a check.
	copyTimeout = 2 * time.Second
)

// checkCopies checks in the background whether all servers have copies of a loaded definition, and copies it if a server
// has none: the process that set it may have ended before all places had it, or the server was away.
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
			ctx, cancel := context.WithTimeout(b.ctx, copyTimeout)
			defer cancel()
			if b.copiesHave(ctx, l, d.Version) {
				l.copied.Store(&copiedVersion{d.Version, time.Now()})
			} else {
				b.copyTo(ctx, l, d)
			}
		})
	})
}

// copiesHave reports whether each server has a copy of that version or a later one. It reads one copy of each server.
func (b *Backend) copiesHave(ctx context.Context, l *limiterPlaces, version int64) bool {
	s := b.scripts.load
	var calls []call
	for _, p := range l.onEach(b.servers) {
		calls = append(calls, call{script: s, args: []any{"evalsha", s.sha, "1", p.def}})
	}
	if len(calls) == 0 || b.runAll(ctx, calls) != nil {
		return false
	}
	return !slices.ContainsFunc(calls, func(c call) bool {
		answer := c.cmd.Val()
		return c.failed() || len(answer) < 16 || number(answer, 8) < version
	})
}

// onEach returns a place of the limiter on each server: of those on a server, the one that copyTo writes last.
func (l *limiterPlaces) onEach(s *servers) (all []*place) {
	if s.cluster != nil && !s.slotsKnown.Load() {
		return nil
	}
	seen := map[string]bool{}
	for i := range numPlaces {
		p := l.at(numPlaces - 1 - i)
		if at := s.serverAt(p); !seen[at] {
			seen[at] = true
			all = append(all, p)
		}
	}
	return all
}
