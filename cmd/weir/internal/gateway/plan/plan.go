// Package plan says which way a request would go through the gateway that a file describes, without a gateway that runs:
// which route it matches, which policies it passes with which keys, and where it is sent.
//
//   - plan.go: Planner and Plan.
//   - request.go: the text of a request, for the command line.
//   - write.go: a plan in words.
package plan

import (
	"errors"
	"net/http"
	"slices"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/proxy"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/transport/weirhttp"
)

// ErrNoGateway is the error of a file without the gateway's part.
var ErrNoGateway = errors.New("the file has no gateway")

// A Planner makes plans. It is safe for concurrent use.
type Planner struct {
	file    *reload.File
	gateway gatewayconfig.Gateway
	table   *proxy.Table
	address weirhttp.Key
}

// New returns a Planner for a file. It opens nothing but the files with the keys of tokens.
func New(f *reload.File) (*Planner, error) {
	g, ok := reload.SectionOf[gatewayconfig.Gateway](f, gatewayconfig.Field)
	if !ok {
		return nil, ErrNoGateway
	}
	g = g.WithDefaults()
	addresses := g.AddressOptions()
	o := &proxy.TableOptions{Address: addresses}
	for _, r := range g.Routes {
		o.Routes = append(o.Routes, proxy.Route{Match: r.Match, StripPrefix: r.StripPrefix})
	}
	table, err := proxy.NewTable(o)
	if err != nil {
		return nil, err
	}
	addresses.IPv6Bits = 128
	address, err := weirhttp.ClientAddress(&addresses)
	return &Planner{file: f, gateway: g, table: table, address: address}, err
}

// A Plan is the way of a request.
type Plan struct {
	Client string // the address of the client, as the trusted proxies tell it
	proxy.Match
	Policies []Policy
	// Strategies are those of the route's pipeline, with the pipelines in it.
	Strategies []Strategy
}

// A Strategy is a strategy that a request passes.
type Strategy struct {
	reload.StrategyInfo
	Keys []Key // of its limiter
}

// A Policy is a policy that a request passes.
type Policy struct {
	Name   string
	Global bool // of all routes
	gatewayconfig.Policy
	Keys []Key // of its limiter or, if that is a chain, of those in it
}

// A Key is the key of a request for a partitioned limiter.
type Key struct {
	Limiter string
	Name    string // of the key in the file
	Value   string
	Empty   []string // the keys that Value is made of and that are empty
	Err     error    // why Value is not known
}

// Plan returns the way of r, which is not sent.
func (p *Planner) Plan(r *http.Request) *Plan {
	made := &Plan{Client: p.address(r), Match: p.table.Match(r)}
	if made.Route < 0 {
		return made
	}
	route := p.gateway.Routes[made.Route]
	for i, name := range p.gateway.PoliciesOf(route) {
		policy := p.gateway.Policies[name]
		made.Policies = append(made.Policies, Policy{
			Name: name, Global: !route.Exempt && i < len(p.gateway.Global), Policy: policy, Keys: p.keysOf(policy.Limiter, made.Request),
		})
	}
	for _, s := range gatewayconfig.Strategies(p.file, route.Pipeline) {
		made.Strategies = append(made.Strategies, Strategy{s, p.keys(s.Limiter, made.Request, nil)})
	}
	return made
}

func (p *Planner) keysOf(limiter string, r *http.Request) []Key {
	info, _ := p.file.Limiter(limiter)
	return p.keys(info, r, nil)
}

// keys returns the keys of a request for a limiter. inside are the names of the chains around it.
func (p *Planner) keys(info reload.LimiterInfo, r *http.Request, inside []string) (all []Key) {
	if slices.Contains(inside, info.Name) { // Parse refuses it
		return nil
	}
	if info.Partitioned {
		k := Key{Limiter: info.Name, Name: info.Key}
		key, err := p.gateway.NewKey(info.Key)
		if k.Err = err; err == nil {
			k.Value = key(r)
			k.Empty = p.empty(p.gateway.Keys[info.Key].Composite, r)
		}
		all = append(all, k)
	}
	for _, name := range info.Members {
		m, _ := p.file.Limiter(name)
		all = append(all, p.keys(m, r, append(slices.Clone(inside), info.Name))...)
	}
	return all
}

// empty returns the names of the keys that are empty for a request.
func (p *Planner) empty(keys []string, r *http.Request) (names []string) {
	for _, name := range keys {
		if parts := p.gateway.Keys[name].Composite; parts != nil {
			names = append(names, p.empty(parts, r)...)
		} else if key, err := p.gateway.NewKey(name); err == nil && key(r) == "" {
			names = append(names, name)
		}
	}
	return names
}
