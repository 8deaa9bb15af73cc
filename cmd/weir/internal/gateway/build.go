package gateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/proxy"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/upstream"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
)

// build adds the table of routes of one version of the file to its pipeline.
func (g *gateway) build(b *reload.SectionBuilder, c gatewayconfig.Gateway) error {
	o := proxy.TableOptions{
		Address:  c.AddressOptions(),
		Via:      c.Via,
		Body:     c.Body.Write(),
		Policies: make(map[string]proxy.Policy),
		Log:      g.accessLog(c.AccessLog),
	}
	for _, k := range c.Keys {
		if header := k.HeaderName(); header != "" {
			o.KeyHeaders = append(o.KeyHeaders, header)
		}
	}
	listener := g.Listener
	if o.Log != nil {
		listener = pipeline.Listeners(proxy.Recorder{}, g.Listener)
	}
	var err error
	if o.Limits, err = c.NewLimits(b, listener, proxy.Recorder{}.OnRejected); err != nil {
		return err
	}
	for name, p := range c.Policies {
		if o.Policies[name], err = buildPolicy(b, c, p); err != nil {
			return err
		}
	}
	upstreams := make(map[string]*upstream.Upstream)
	for name, u := range c.Upstreams {
		if upstreams[name], err = buildUpstream(b, name, u); err != nil {
			return err
		}
	}
	for _, r := range c.Routes {
		route := proxy.Route{
			Match: r.Match, Upstream: upstreams[r.Upstream], KeepHost: c.Upstreams[r.Upstream].KeepHost,
			Policies: c.PoliciesOf(r), StripPrefix: r.StripPrefix,
		}
		if r.Pipeline != "" {
			if route.Pipeline, err = b.Pipeline(r.Pipeline); err != nil {
				return err
			}
			if route.Limiters, err = limitersOf(b.File, c, r.Pipeline); err != nil {
				return err
			}
		}
		o.Routes = append(o.Routes, route)
	}
	table, err := proxy.NewTable(&o)
	if err != nil {
		return err
	}
	b.Add(table)
	return nil
}

// limitersOf returns what the check needs to know of the limiters in a pipeline.
func limitersOf(f *reload.File, c gatewayconfig.Gateway, pipeline string) (map[string]proxy.Limiter, error) {
	all := make(map[string]proxy.Limiter)
	for source, info := range gatewayconfig.LimitersIn(f, pipeline) {
		l := proxy.Limiter{Name: info.Name}
		if info.Partitioned {
			var err error
			if l.Key, err = c.NewKey(info.Key); err != nil {
				return nil, err
			}
		}
		all[source] = l
	}
	return all, nil
}

// buildPolicy returns what the access log and the check need to know of a policy.
func buildPolicy(b *reload.SectionBuilder, c gatewayconfig.Gateway, p gatewayconfig.Policy) (proxy.Policy, error) {
	made := proxy.Policy{Limiter: p.Limiter, Shadow: p.Shadow, FailOpen: p.FailOpen}
	info, _ := b.File.Limiter(p.Limiter)
	if !info.Partitioned {
		l, err := b.Limiter(p.Limiter)
		if err != nil {
			return made, err
		}
		made.Peek = func(ctx context.Context) (limiter.Lease, error) {
			if peeker, ok := l.(limiter.Peeker); ok {
				return peeker.Peek(ctx, p.Cost)
			}
			return limiter.Lease{}, errNoPeek
		}
		return made, nil
	}
	l, err := b.Partitioned(p.Limiter)
	if err != nil {
		return made, err
	}
	made.Peek = func(ctx context.Context) (limiter.Lease, error) {
		if peeker, ok := l.(limiter.PartitionedPeeker[context.Context]); ok {
			return peeker.Peek(ctx, ctx, p.Cost)
		}
		return limiter.Lease{}, errNoPeek
	}
	made.Key, err = c.NewKey(info.Key)
	return made, err
}

var errNoPeek = fmt.Errorf("the limiter cannot be asked without taking permits: %w", errors.ErrUnsupported)

// buildUpstream returns an upstream. A reload that does not change its options keeps its connections.
func buildUpstream(b *reload.SectionBuilder, name string, u gatewayconfig.Upstream) (*upstream.Upstream, error) {
	o := upstream.TransportOptions{
		DialTimeout:           u.DialTimeout,
		ResponseHeaderTimeout: u.ResponseHeaderTimeout,
		MaxConnections:        u.MaxConnections,
		H2C:                   u.H2C,
	}
	if u.TLS != nil {
		o.CA, o.ServerName, o.Certificate, o.Key = u.TLS.CA, u.TLS.ServerName, u.TLS.Certificate, u.TLS.Key
	}
	base := registry.Keep(b.Builder, gatewayconfig.PipelineName+"/"+name, o, registry.Kept[*upstream.Transport, upstream.TransportOptions]{
		Kind: "upstream",
		Make: upstream.NewTransport,
	})
	addresses := make([]*upstream.Address, len(u.Addresses))
	_, guarded := u.Breaker()
	for i, a := range u.Addresses {
		var p *pipeline.Pipeline
		if guarded {
			var err error
			if p, err = b.Pipeline(addressPipeline(name, a)); err != nil {
				return nil, err
			}
		}
		addresses[i] = upstream.NewAddress(&a.URL, p)
	}
	return upstream.New(name, base, addresses...), nil
}

// accessLog returns the log that the file asks for, or nil.
func (g *gateway) accessLog(c gatewayconfig.AccessLog) *proxy.Log {
	if c.Off {
		return nil
	}
	to := g.Requests
	if c.Output == gatewayconfig.Stderr {
		to = g.Errors
	}
	key := g.KeyHash.Hash
	if c.Keys {
		key = func(key string) string { return key }
	}
	return proxy.NewLog(to, c.Query, key)
}
