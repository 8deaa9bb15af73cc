package rlsconfig

import (
	"cmp"
	"time"
)

// The defaults of a rate limit service.
const (
	DefaultListen                = "127.0.0.1:8081"
	DefaultMaxConnectionAge      = 24 * time.Hour
	DefaultMaxConnectionAgeGrace = time.Hour
	DefaultMaxKeys               = 100_000
)

// WithDefaults returns r with the value that applies in every field that a file can leave out, except in its domains. A
// MaxConnectionAge that is off is 0.
func (r RLS) WithDefaults() RLS {
	r.Listen = cmp.Or(r.Listen, DefaultListen)
	r.Common = r.Common.WithDefaults()
	r.MaxConnectionAge = max(cmp.Or(r.MaxConnectionAge, DefaultMaxConnectionAge), 0)
	r.MaxConnectionAgeGrace = cmp.Or(r.MaxConnectionAgeGrace, DefaultMaxConnectionAgeGrace)
	r.Counters.MaxKeys = cmp.Or(r.Counters.MaxKeys, DefaultMaxKeys)
	r.Mode = cmp.Or(r.Mode, Exact)
	return r
}
