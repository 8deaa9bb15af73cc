package eventqueue_test

import (
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/internal/eventqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestQueueKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		q := eventqueue.New("test", func(i int) { got = append(got, i) })
		for i := range 100 {
			q.Add(i)
		}
		synctest.Wait()
		assert.Len(t, got, 100)
		assert.IsIncreasing(t, got)
	})
}

func TestQueueWithoutFunction(t *testing.T) {
	eventqueue.New[int]("test", nil).Add(1)
}

func TestQueueFunctionThatPanicsOrEndsItsGoroutine(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	synctest.Test(t, func(t *testing.T) {
		var got []int
		q := eventqueue.New("test", func(i int) {
			got = append(got, i)
			switch i {
			case 1:
				panic("one")
			case 2:
				runtime.Goexit()
			}
		})
		for i := range 5 {
			q.Add(i)
		}
		synctest.Wait()
		assert.Equal(t, []int{0, 1, 2, 3, 4}, got)
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block, n := make(chan struct{}), 0
		q := eventqueue.New("test", func(int) { <-block; n++ })
		q.Add(0)
		synctest.Wait() // it has the first one
		var adding sync.WaitGroup
		for range 4 {
			adding.Go(func() {
				for i := range 5_000 {
					q.Add(i)
				}
			})
		}
		adding.Wait()
		close(block)
		synctest.Wait()
		assert.Equal(t, 1+10_000, n)
	})
}
