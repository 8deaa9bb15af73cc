package hedge_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/hedge"
)

// A bin has what was disposed of.
type bin struct {
	sync.Mutex
	all []string
}

func (b *bin) dispose(result any, err error) {
	b.Lock()
	defer b.Unlock()
	b.all = append(b.all, fmt.Sprint(result, " ", err))
}

func (b *bin) contents() []string {
	b.Lock()
	defer b.Unlock()
	return slices.Clone(b.all)
}

func TestOptions_Dispose(t *testing.T) {
	cases := []struct {
		name         string
		options      hedge.Options
		script       script
		before, late []string // when Execute returns, and later
	}{
		{"no loser", hedge.Options{}, script{{takes: s}}, nil, nil},
		{"a deaf loser", hedge.Options{}, script{{takes: 9 * s, deaf: true}, {}}, nil, []string{"0 <nil>"}},
		{"a loser that listens", hedge.Options{}, script{{takes: 9 * s}, {}}, nil, []string{"-1 " + hedge.ErrLost.Error()}},
		{"the first was handled", hedge.Options{}, script{{takes: s, err: errBoom}, {takes: s}}, []string{"0 boom"}, nil},
		{"the first is returned", hedge.Options{}, script{{takes: s, err: errBoom}, {takes: s, err: errBoom}}, []string{"1 boom"}, nil},
		{"in turn", hedge.Options{Delay: -1, MaxHedges: 2}, script{{err: errBoom}, {err: errBoom}, {}}, []string{"0 boom", "1 boom"}, nil},
		{"in turn, the first is returned", hedge.Options{Delay: -1}, script{{err: errBoom}, {err: errBoom}}, []string{"1 boom"}, nil},
		{"a panic decides", hedge.Options{MaxHedges: 2}, script{{takes: s, err: errBoom}, {takes: 9 * s, deaf: true}, {takes: s, panic: "oh"}}, []string{"0 boom"}, []string{"1 <nil>"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var disposed bin
				var began []time.Duration
				c.options.Dispose = disposed.dispose
				func() {
					defer func() { _ = recover() }()
					_, _ = pipeline.ExecuteValue(t.Context(), with(&c.options), c.script.run(&began))
				}()
				assert.Equal(t, c.before, disposed.contents())
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, append(slices.Clone(c.before), c.late...), disposed.contents())
			})
		})
	}
}

func TestDispose(t *testing.T) {
	var disposed []*int
	dispose := hedge.Dispose(func(p *int) { disposed = append(disposed, p) })
	one := new(1)
	dispose(one, nil)
	dispose(one, errBoom)
	dispose(nil, errBoom)
	dispose((*int)(nil), errBoom)
	dispose("text", nil)
	assert.Equal(t, []*int{one, one}, disposed)

	n := 0
	hedge.Dispose(func(any) { n++ })(0, nil)
	hedge.Dispose(func(any) { n++ })(nil, nil)
	assert.Equal(t, 1, n, "what cannot be nil is not")
}

func TestStrategy_Panic(t *testing.T) {
	value := &struct{ text string }{"oh"}
	for name, c := range map[string]struct {
		options *hedge.Options
		script  script
	}{
		"of the first":  {nil, script{{takes: s, panic: value}}},
		"of a hedge":    {nil, script{{takes: 9 * s}, {takes: s, panic: value}}},
		"after another": {nil, script{{err: errBoom}, {takes: s, panic: value}}},
		"in turn":       {&hedge.Options{Delay: -1}, script{{err: errBoom}, {panic: value}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var began []time.Duration
				defer func() { assert.Same(t, value, recover()) }()
				_, _ = pipeline.ExecuteValue(t.Context(), with(c.options), c.script.run(&began))
				t.Error("no panic")
			})
		})
	}
}

func TestStrategy_LoserDoesNotReturn(t *testing.T) {
	for name, c := range map[string]struct {
		leave func()
		value any
		text  string
	}{
		"panic":  {func() { panic(errBoom) }, errBoom, "panic: boom"},
		"goexit": {runtime.Goexit, nil, "it left its goroutine"},
	} {
		synctest.Test(t, func(t *testing.T) {
			lost := make(chan error, 1)
			p := with(&hedge.Options{Dispose: func(result any, err error) {
				assert.Nil(t, result)
				lost <- err
			}})
			require.NoError(t, p.Execute(t.Context(), func(ctx context.Context) error {
				if hedge.AttemptNumber(ctx) == 0 {
					time.Sleep(time.Minute)
					c.leave()
				}
				return nil
			}))
			failure, ok := errors.AsType[*pipeline.PanicError](<-lost)
			require.True(t, ok, name)
			assert.Equal(t, c.value, failure.Value)
			assert.ErrorIs(t, failure, pipeline.ErrAborted)
			assert.EqualError(t, failure, c.text)
			assert.Contains(t, string(failure.Stack), "losers_test.go", "where")
		})
	}
}

func TestStrategy_Goexit(t *testing.T) {
	for _, delay := range []time.Duration{0, -1} {
		returned, finished := false, make(chan struct{})
		go func() {
			defer close(finished)
			_ = with(&hedge.Options{Delay: delay}).Execute(t.Context(), func(context.Context) error { runtime.Goexit(); return nil })
			returned = true
		}()
		<-finished
		assert.False(t, returned)
	}
}
