package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

var errBoom = errors.New("boom")

func nothing(context.Context) error { return nil }

// open returns a registry that is closed with the test, and then has nothing left.
func open(t *testing.T, o *registry.Options) *registry.Registry {
	t.Helper()
	r := registry.New(o)
	t.Cleanup(func() {
		assert.NoError(t, r.Close(context.WithoutCancel(t.Context())))
		assert.Zero(t, r.OwnedLimiters())
	})
	return r
}

func get(t *testing.T, r *registry.Registry, name string) *pipeline.Pipeline {
	t.Helper()
	p, err := r.Get(name)
	require.NoError(t, err)
	require.NotNil(t, p)
	return p
}

// define defines a pipeline and returns it.
func define(t *testing.T, r *registry.Registry, name string, build registry.BuildFunc) *pipeline.Pipeline {
	t.Helper()
	require.NoError(t, r.Define(name, build))
	return get(t, r, name)
}

// A version is a strategy by which an execution sees on what it runs: its context
// has the number, and a string that comes out gets it appended.
type version int

type versionKey struct{}

func (v version) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	value, err := next.Run(context.WithValue(ctx, versionKey{}, int(v)))
	if s, ok := value.(string); ok {
		value = fmt.Sprintf("%s, ended on %d", s, v)
	}
	return value, err
}

// versionOf runs an execution and says on which version.
func versionOf(t *testing.T, p *pipeline.Pipeline) int {
	t.Helper()
	v, err := pipeline.ExecuteValue(t.Context(), p, func(ctx context.Context) (int, error) {
		n, _ := ctx.Value(versionKey{}).(int)
		return n, nil
	})
	require.NoError(t, err)
	return v
}

// numbered builds versions that are numbered from 1.
type numbered struct{ builds atomic.Int64 }

func (n *numbered) build(b *registry.Builder) error {
	b.Add(version(n.builds.Add(1)))
	return nil
}

func (n *numbered) made() int { return int(n.builds.Load()) }

// with returns a build function that adds those strategies.
func with(s ...pipeline.Strategy) registry.BuildFunc {
	return func(b *registry.Builder) error {
		b.Add(s...)
		return nil
	}
}

// hold begins an execution and returns when it is inside. end lets it go and
// returns what came out.
func hold(t *testing.T, p *pipeline.Pipeline) (end func() string) {
	t.Helper()
	inside, leave, out := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	go func() {
		v, err := pipeline.ExecuteValue(t.Context(), p, func(ctx context.Context) (string, error) {
			close(inside)
			<-leave
			return fmt.Sprintf("began on %v", ctx.Value(versionKey{})), nil
		})
		if err != nil {
			v = err.Error()
		}
		out <- v
	}()
	<-inside
	return sync.OnceValue(func() string {
		close(leave)
		return <-out
	})
}

// A closing is a strategy that owns something.
type closing struct{ f func() error }

func (c *closing) Execute(ctx context.Context, next pipeline.Next) (any, error) { return next.Run(ctx) }

func (c *closing) Close() error {
	if f := c.f; f != nil {
		return f()
	}
	return nil
}

// An invalid is a strategy that does not want to be used, and owns something.
type invalid struct{ closing }

func (*invalid) Validate() error { return errBoom }

// A journal is written by many.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// note returns a function that writes a line and returns err.
func (j *journal) note(line string, err error) func() error {
	return func() error {
		j.add("%s", line)
		return err
	}
}

// take returns the lines since the last time.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

// A recorder is a listener that keeps the events of the registry, and not those of
// executions.
type recorder struct {
	journal

	mu     sync.Mutex
	events []pipeline.Event
}

func (l *recorder) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnEvent: l.OnEvent,
		Forget:  l.Forget,
	}
}

func (l *recorder) OnEvent(_ context.Context, e pipeline.Event) {
	switch e.Name {
	case registry.EventReload, registry.EventReloadFailed, registry.EventDisposeFailed:
		l.add("%s %s", e.Name, e.Source)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events = append(l.events, e)
	}
}

func (l *recorder) Forget(s pipeline.Source) { l.add("Forget %s", s) }

// last returns the newest event of that name.
func (l *recorder) last(t *testing.T, name string) pipeline.Event {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range slices.Backward(l.events) {
		if e.Name == name {
			return e
		}
	}
	require.Fail(t, "no event "+name)
	return pipeline.Event{}
}

func isAny(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
