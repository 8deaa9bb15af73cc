package gatewayconfig

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/simulate"
	"github.com/weir-go/weir/store"
)

// Simulated returns a Runtime for a simulation. Keys are those of the simulated requests, and stores are in memory: nothing
// that the file names is opened.
func Simulated(s *simulate.Setup) Runtime {
	return Runtime{
		Store: func(name string, _ Store) (*store.Store, error) { return s.Store(name), nil },
		Key: func(name string) func(context.Context) string {
			s.Assume(fmt.Sprintf("The key %q is the key of the request.", name))
			return simulate.Key
		},
	}
}
