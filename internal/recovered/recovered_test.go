package recovered_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/internal/recovered"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logTo sends what slog.Default logs to h until the test ends.
func logTo(t *testing.T, h slog.Handler) {
	was := slog.Default()
	slog.SetDefault(slog.New(h))
	t.Cleanup(func() { slog.SetDefault(was) })
}

func TestCall_ReportsAPanic(t *testing.T) {
	var out bytes.Buffer
	logTo(t, slog.NewTextHandler(&out, nil))

	assert.False(t, recovered.Call("limiter: IdleDuration", func() { panic("out of order") }))
	assert.Contains(t, out.String(), `level=ERROR msg="weir: recovered a panic" hook="limiter: IdleDuration" panic="out of order"`)
	assert.Contains(t, out.String(), "recovered_test.go", "the stack shows where")
}

func TestCall_ReturnsTrueIfFReturns(t *testing.T) {
	var out bytes.Buffer
	logTo(t, slog.NewTextHandler(&out, nil))

	called := false
	assert.True(t, recovered.Call("hook", func() { called = true }))
	assert.True(t, called)
	assert.Empty(t, out.String())
}

func TestCall_ReportsThroughAPanickingLogHandler(t *testing.T) {
	logTo(t, panicking{})

	assert.NotPanics(t, func() { assert.False(t, recovered.Call("hook", func() { panic(1) })) })
}

type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool { panic("the log is full") }

type closer func() error

func (c closer) Close() error { return c() }

func TestCloseAll(t *testing.T) {
	var closed []int
	closing := func(i int, f func() error) closer {
		return func() error { closed = append(closed, i); return f() }
	}
	failed := map[int]string{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		recovered.CloseAll([]any{
			closing(0, func() error { return nil }),
			closing(1, func() error { return errors.New("full") }),
			"not a closer", nil,
			closing(4, func() error { panic("ouch") }),
			closing(5, func() error { runtime.Goexit(); return nil }),
			closing(6, func() error { return nil }),
		}, func(i int, err error) { failed[i] = err.Error() })
	}()
	<-done
	assert.Equal(t, []int{0, 1, 4, 5, 6}, closed)
	assert.Equal(t, map[int]string{1: "full", 4: "panic: ouch", 5: "it left its goroutine"}, failed)
}
