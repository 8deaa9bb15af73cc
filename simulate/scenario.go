package simulate

import (
	"time"

	"github.com/weir-go/weir/registry"
)

// A Scenario is what [Run] simulates. Config and Load are required, and so is Pipeline if Config defines several. Run does
// not change a Scenario, and several runs can use one at the same time.
type Scenario struct {
	// Config defines the pipelines. [File] makes one of a configuration file.
	Config Config
	// Pipeline is the name of the pipeline that the requests go through. If empty, Config must define exactly one.
	Pipeline string
	// Instances is how many instances of the program there are. Each has a registry of its own, and requests go to them in
	// turn. 0 means 1, and 10,000 are the most.
	Instances int
	// Load is the requests that arrive.
	Load Load
	// Service is what the pipeline protects. The zero Service answers at once and never fails.
	Service Service
	// Clients is how the clients behave. The zero Clients wait for each answer however long it takes, and give up
	// at the first error.
	Clients Clients
	// Seed is where the random numbers begin. The same Seed gives the same Result; 0 is a seed like any other.
	Seed uint64
	// Interval is the length of the elements of [Result.Series], at least 1 ms. 0 means a 120th of the load's duration.
	Interval time.Duration
	// Windows are the lengths of time for which [Result.Most] has the largest number of permits. If nil, there is one
	// window, of one second. If empty but not nil, there is none. A window takes 32 bytes for each call of the service in
	// it, so long ones take much memory under a high load.
	Windows []time.Duration
	// MaxInFlight is how many requests can be in flight at a time, each of which takes about 10 kB; in a closed load, how
	// many clients there can be. With more, Run returns an error. 0 means 100,000.
	MaxInFlight int
}

// A Config defines the pipelines of one instance, in the Define of the change that it returns. [File] makes a Config of a
// configuration file. A Config runs in the bubble of the simulation, once for each instance: what belongs to the pipelines,
// such as a limiter, must be made in the Config or in the functions of Define. These functions can use s, too; after them,
// s must not be used.
type Config func(s *Setup) (registry.Change, error)
