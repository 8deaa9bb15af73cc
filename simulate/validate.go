package simulate

import (
	"cmp"
	"time"
)

// Validate returns a [weir.OptionsError] with everything that is wrong with s, or nil. [Run] calls it.
func (s *Scenario) Validate() error { return nil }

func (s Scenario) withDefaults() Scenario {
	s.Instances = cmp.Or(s.Instances, 1)
	s.Interval = cmp.Or(s.Interval, max(s.Load.For/120, time.Millisecond))
	s.MaxInFlight = cmp.Or(s.MaxInFlight, 100_000)
	if s.Windows == nil {
		s.Windows = []time.Duration{time.Second}
	}
	return s
}
