package gatewayconfig

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// The defaults of a gateway.
const (
	DefaultListen              = ":8080"
	DefaultClientAddressHeader = "X-Forwarded-For"
	DefaultVia                 = "weir"
	DefaultReadHeaderTimeout   = 10 * time.Second
	DefaultIdleTimeout         = 2 * time.Minute
	DefaultMaxHeaderBytes      = 1 << 20
	DefaultDialTimeout         = 5 * time.Second
	DefaultFailures            = 5 // in a row, until an address is asked only if no other one can be
	DefaultTokenHeader         = "Authorization"
	DefaultIPv6Bits            = 64
)

// WithDefaults returns g with the value that applies in every field that a file can leave out. A timeout that is off is
// 0, as package net/http has it, and a Via that is off is empty. Maps and lists are copies.
func (g Gateway) WithDefaults() Gateway {
	g.Listen = cmp.Or(g.Listen, DefaultListen)
	g.Common = g.Common.WithDefaults()
	g.ClientAddressHeader = cmp.Or(g.ClientAddressHeader, DefaultClientAddressHeader)
	if g.Via = cmp.Or(g.Via, DefaultVia); g.Via == "off" {
		g.Via = ""
	}
	g.ReadHeaderTimeout = orOff(g.ReadHeaderTimeout, DefaultReadHeaderTimeout)
	g.IdleTimeout = orOff(g.IdleTimeout, DefaultIdleTimeout)
	g.MaxHeaderBytes = cmp.Or(g.MaxHeaderBytes, DefaultMaxHeaderBytes)
	g.Body = cmp.Or(g.Body, PlainBody)
	g.Upstreams = maps.Clone(g.Upstreams)
	for name, u := range g.Upstreams {
		u.DialTimeout = cmp.Or(u.DialTimeout, DefaultDialTimeout)
		u.Health = u.Health.withDefaults()
		g.Upstreams[name] = u
	}
	g.Policies = maps.Clone(g.Policies)
	for name, p := range g.Policies {
		p.Headers = cmp.Or(p.Headers, &g.Headers)
		p.Body = cmp.Or(p.Body, g.Body)
		p.Cost = cmp.Or(p.Cost, 1)
		p.Shadow = p.Shadow || g.Shadow
		g.Policies[name] = p
	}
	g.Global, g.Routes = slices.Clone(g.Global), slices.Clone(g.Routes)
	return g
}

// orOff returns d, or the default if d is 0, or 0 if d is -1, which stands for off.
func orOff(d, byDefault time.Duration) time.Duration { return max(cmp.Or(d, byDefault), 0) }
