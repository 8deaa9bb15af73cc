package simulate

import (
	"time"

	"github.com/weir-go/weir/registry"
)

// A Scenario is what [Run] simulates. Config and Load are required, and Pipeline if there are several.
type Scenario struct {
	// Config defines the pipelines. [File] makes one of a configuration file.
	Config Config
	// Pipeline is the name of the pipeline that the requests go through. If empty, Config must define exactly one.
	Pipeline string
	// Instances is how many instances of the program there are. Each has a registry of its own, and requests go to them in
	// turn. 0 means 1, and 10,000 are the most.
	Instances int
	// Load is the requests.
	Load Load
	// Service is what the pipeline protects. The zero Service answers at once and never fails.
	Service Service
	// Clients is how the clients behave. The zero Clients wait for each answer however long it takes, and give up
	// at the first error.
	Clients Clients
	// Seed is where the random numbers begin. The same Seed gives the same Result.
	Seed uint64
	// Interval is the resolution of [Result.Series]. 0 means a 120th of the load's duration.
	Interval time.Duration
	// Windows are the lengths of time for which Result.Most has the largest number of permits. The default is one second.
	Windows []time.Duration
	// MaxInFlight is how many requests there can be at a time, each of which takes about 10 kB. With more, Run returns an
	// error. It also bounds the clients of a closed load. 0 means 100,000.
	MaxInFlight int
	// Progress is called about five times a second of real time, with how much of the load's duration has passed. It is
	// not called concurrently. If nil, progress is not reported.
	Progress func(elapsed time.Duration)
}

// A Config defines the pipelines of one instance. It runs in the bubble of the simulation, once for each instance: what
// it makes, such as a limiter, must be made inside it. s must not be used after the Config has returned.
type Config func(s *Setup) (registry.Change, error)
