package simulate

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

// A bomb is each part of a Scenario that a program can write itself. It panics at its tenth call.
type bomb struct{ calls int }

var errBomb = errors.New("boom")

func (b *bomb) tick() {
	if b.calls++; b.calls == 10 {
		panic(errBomb)
	}
}

func (b *bomb) Duration(*rand.Rand) time.Duration { b.tick(); return time.Millisecond }
func (b *bomb) Key(*rand.Rand) string             { b.tick(); return "key" }
func (b *bomb) Cost(*rand.Rand) int               { b.tick(); return 1 }
func (b *bomb) Arrivals(until time.Duration) float64 {
	b.tick()
	return ConstantRate{100}.Arrivals(until)
}

// Where a function of the program panics, Run returns the panic as its error, and no goroutine is left.
func TestRun_Panics(t *testing.T) {
	for name, change := range map[string]func(*Scenario){
		"Rate":      func(s *Scenario) { s.Load.Open.Rate = &bomb{} },
		"Keys":      func(s *Scenario) { s.Load.Keys = &bomb{} },
		"Cost":      func(s *Scenario) { s.Load.Cost = &bomb{} },
		"Latency":   func(s *Scenario) { s.Service.Latency = &bomb{} },
		"of a wait": func(s *Scenario) { s.Service.Latency, s.Service.Capacity = &bomb{}, 1; s.Load = atOnce(20) },
		"of a hedge": func(s *Scenario) {
			s.Config, s.Service.Latency = config(`pipelines: {p: {strategies: [hedging: {at_once: true}]}}`), &bomb{}
		},
		"of a Period": func(s *Scenario) {
			s.Service.Periods = []Period{{To: time.Second, Latency: &bomb{}}}
		},
		"Think": func(s *Scenario) { s.Load.Open, s.Load.Closed = nil, &Closed{Clients: 3, Think: &bomb{}} },
	} {
		t.Run(name, func(t *testing.T) {
			s := Scenario{Config: config(window30), Load: constant(100, time.Second), Service: Service{Latency: Fixed{50 * ms}}}
			change(&s)
			r, err := Run(t.Context(), s)
			assert.Nil(t, r)
			assert.ErrorIs(t, err, errBomb)
			panicked, ok := errors.AsType[*registry.PanicError](err)
			assert.True(t, ok && panicked.Value == errBomb)
			assert.NotContains(t, err.Error(), "did not end")
		})
	}
}

// A quitter ends the goroutine of its tenth execution.
type quitter struct{ calls int }

func (q *quitter) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if q.calls++; q.calls == 10 {
		runtime.Goexit()
	}
	return next.Run(ctx)
}

// So does a request that ends its goroutine, as a failed assertion of a test does.
func TestRun_RequestEndsGoroutine(t *testing.T) {
	_, err := Run(t.Context(), Scenario{
		Config: func(*Setup) (registry.Change, error) {
			return registry.Change{Define: map[string]registry.BuildFunc{"p": func(b *registry.Builder) error {
				b.Add(new(quitter))
				return nil
			}}}, nil
		},
		Load: constant(100, time.Second), Service: Service{Latency: Fixed{50 * ms}},
	})
	assert.EqualError(t, err, "simulate: a function of the scenario or of its pipelines ended its goroutine")
}
