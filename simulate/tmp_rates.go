package simulate

import "time"

type ConstantRate struct{ Rate float64 }

func (c ConstantRate) Arrivals(d time.Duration) float64 { return c.Rate * d.Seconds() }
func (c ConstantRate) Validate() error                  { return nil }
