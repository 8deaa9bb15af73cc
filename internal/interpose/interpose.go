// Package interpose is how package simulate puts its own steps between the strategies of the pipelines that it runs.
package interpose

import "github.com/weir-go/weir/pipeline"

// An Interposer is a listener of a registry that changes the strategies of each pipeline before the registry prepares it.
type Interposer interface {
	pipeline.Listener
	// Interpose returns what a pipeline with these strategies runs. It must keep their order.
	Interpose(strategies []pipeline.Strategy) []pipeline.Strategy
}
