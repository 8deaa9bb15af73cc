package explain

import (
	"cmp"
	"strings"

	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/chaos"
)

// explainChaos says in what part of the executions a strategy does something.
func explainChaos(o chaos.Options, subject, what string) string {
	part := "none"
	if rate := cmp.Or(o.Rate, chaos.DefaultRate); rate > 0 {
		part = percent(rate)
	}
	words := "chaos: " + part + " of the " + strings.TrimPrefix(subject, "each ") + "s " + what
	if !o.Enabled {
		words += ", when enabled; it is off"
	}
	return words
}

func explainFault(o model.ChaosFaultOptions, subject string) string {
	what := "fail"
	if o.Error != "" {
		what += " with " + o.Error
	}
	return explainChaos(o.Options, subject, what)
}

func explainLatency(o model.ChaosLatencyOptions, subject string) string {
	what := "take no longer"
	if latency := cmp.Or(o.Latency, chaos.DefaultLatency); latency > 0 {
		what = "take " + briefly(latency) + " longer"
	}
	return explainChaos(o.Options, subject, what)
}
