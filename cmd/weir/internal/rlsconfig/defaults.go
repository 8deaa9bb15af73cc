package rlsconfig

import (
	"cmp"
	"time"

	"github.com/weir-go/weir/transport/weirrls"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// The defaults of a rate limit service.
const (
	DefaultListen                = "127.0.0.1:8081"
	DefaultMaxConnectionAge      = 24 * time.Hour
	DefaultMaxConnectionAgeGrace = time.Hour
	DefaultShutdownTimeout       = 10 * time.Second
	DefaultMaxKeys               = weirrls.DefaultMaxKeys
)

// WithDefaults returns r with the value that applies in every field that a file can leave out, except in its domains. A
// MaxConnectionAge that is off is 0.
func (r RLS) WithDefaults() RLS {
	r.Listen = cmp.Or(r.Listen, DefaultListen)
	r.Admin = fileconfig.Loopback(cmp.Or(r.Admin, fileconfig.DefaultAdmin))
	r.MaxConnectionAge = max(cmp.Or(r.MaxConnectionAge, DefaultMaxConnectionAge), 0)
	r.MaxConnectionAgeGrace = cmp.Or(r.MaxConnectionAgeGrace, DefaultMaxConnectionAgeGrace)
	r.ShutdownTimeout = cmp.Or(r.ShutdownTimeout, DefaultShutdownTimeout)
	r.Counters.MaxKeys = cmp.Or(r.Counters.MaxKeys, DefaultMaxKeys)
	r.Mode = cmp.Or(r.Mode, Exact)
	return r
}
