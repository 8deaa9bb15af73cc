package circuitbreaker_test

import (
	"context"
	"sync"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// BenchmarkExecute has an empty pipeline's cost in it.
func BenchmarkExecute(b *testing.B) {
	isolated := &circuitbreaker.Control{}
	isolated.Isolate()
	kinds := []struct {
		name    string
		options circuitbreaker.Options
		fails   bool // the callback, once
	}{
		{"closed/ratio", circuitbreaker.Options{}, false},
		{"closed/consecutive", circuitbreaker.Options{FailureRatio: -1, ConsecutiveFailures: 5}, false},
		{"closed/both", circuitbreaker.Options{ConsecutiveFailures: 5}, false},
		{"closed/control", circuitbreaker.Options{Control: &circuitbreaker.Control{}}, false},
		{"open", circuitbreaker.Options{ConsecutiveFailures: 1, BreakDuration: 1 << 62}, true},
		{"isolated", circuitbreaker.Options{Control: isolated}, false},
	}
	for _, k := range kinds {
		for _, goroutines := range []int{1, 2} {
			b.Run(k.name+"/goroutines="+string(rune('0'+goroutines)), func(b *testing.B) {
				p := weir.Must(pipeline.New("bench", circuitbreaker.New(&k.options)))
				if k.fails {
					_ = p.Execute(context.Background(), func(context.Context) error { return errBoom })
				}
				b.ReportAllocs()
				share(b, goroutines, func() { _ = p.Execute(context.Background(), succeed) })
			})
		}
	}
}

// share has b.N calls of f made by that many goroutines.
func share(b *testing.B, goroutines int, f func()) {
	if goroutines == 1 {
		for b.Loop() {
			f()
		}
		return
	}
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range b.N / goroutines {
				f()
			}
		})
	}
	wg.Wait()
}
