package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/chaos"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

func with(s ...pipeline.Strategy) *pipeline.Pipeline {
	return weir.Must(pipeline.New("orders", s...))
}

// always are the options of what is injected each time.
var always = chaos.Options{Enabled: true, Rate: 1}

// makers make one strategy of each kind, of what they have in common.
var makers = map[string]func(o chaos.Options) pipeline.Strategy{
	"Chaos.Fault": func(o chaos.Options) pipeline.Strategy {
		return chaos.NewFault(&chaos.FaultOptions{Options: o, Err: errBoom})
	},
	"Chaos.Latency": func(o chaos.Options) pipeline.Strategy {
		return chaos.NewLatency(&chaos.LatencyOptions{Options: o, Latency: 1})
	},
	"Chaos.Outcome": func(o chaos.Options) pipeline.Strategy {
		return chaos.NewOutcome(&chaos.OutcomeOptions{Options: o, Result: chaos.Result{Value: "stale"}})
	},
	"Chaos.Behavior": func(o chaos.Options) pipeline.Strategy {
		return chaos.NewBehavior(&chaos.BehaviorOptions{Options: o, Behavior: func(context.Context) error { return nil }})
	},
}

// listened builds a pipeline that writes down what is injected: the events and the
// calls of OnInjected.
func listened(log *[]string, o chaos.Options, build func(o chaos.Options) pipeline.Strategy) *pipeline.Pipeline {
	o.OnInjected = func(_ context.Context, i pipeline.Event) {
		*log = append(*log, fmt.Sprint("callback ", i.Result, " ", i.Err, " ", i.Duration, " ", i.Source))
	}
	return weir.Must(pipeline.Config{Name: "p", Strategies: []pipeline.Strategy{build(o)},
		Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
			if e.Source.Strategy != "" {
				*log = append(*log, fmt.Sprint(e.Name, " ", e.Severity, " ", e.Result, " ", e.Err, " ", e.Duration))
			}
		})}.Build())
}

// noting is a callback that writes down that it ran.
func noting(log *[]string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		*log = append(*log, "ran")
		return "fresh", nil
	}
}
