package rls

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirrls"
)

// services have the service of the version in force. A service is kept from version to version, unless its options change:
// it bounds how many names of metrics have values of descriptors.
type services struct {
	made atomic.Uint64 // how many versions

	mu      sync.Mutex
	current *version // nil: none was used
}

// A version is the strategy with the rules of one version of the file. The first request makes them those of the service:
// when a version is built, it is not known whether it comes into force.
type version struct {
	of          *services
	number      uint64 // of the version; a later one has a larger one
	rules       *weirrls.Rules
	options     weirrls.ServiceOptions
	description description

	used atomic.Pointer[weirrls.Service] // nil: there was no request
}

// A description is what is told of a version.
type description struct {
	Domains int `json:"domains"`
	Rules   int `json:"rules"`
}

// newVersion returns a version, which is later than all others.
func (s *services) newVersion(rules *weirrls.Rules, o weirrls.ServiceOptions, d description) *version {
	return &version{of: s, number: s.made.Add(1), rules: rules, options: o, description: d}
}

// service returns the service with the rules of v.
func (v *version) service() *weirrls.Service {
	if s := v.used.Load(); s != nil {
		return s
	}
	return v.of.use(v)
}

// use returns the service for the first request of v.
func (s *services) use(v *version) *weirrls.Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	if used := v.used.Load(); used != nil {
		return used
	}
	var service *weirrls.Service
	switch late := s.current != nil && v.number < s.current.number; {
	case s.current != nil && !late && sameOptions(v.options, s.current.options):
		service = s.current.used.Load()
		service.SetRules(v.rules)
	default: // NewRules has made the rules, and the options have counters: there is no error
		service = weir.Must(weirrls.NewService(v.rules, &v.options))
		if late { // a request that has begun on a version that was replaced before it had another one
			return service
		}
	}
	v.used.Store(service)
	s.current = v
	return service
}

// sameOptions compares what a file can change.
func sameOptions(a, b weirrls.ServiceOptions) bool {
	a.Counters, a.Listener, b.Counters, b.Listener = nil, nil, nil, nil
	return a == b
}

var errNoCall = errors.New("rls: the pipeline is for the requests of the service")

// Execute gives the version to the request.
func (v *version) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return nil, errNoCall
	}
	c.version = v
	return next.Run(ctx)
}

// Describe returns how many rules there are, as a [pipeline.Description] has the options of a strategy.
func (v *version) Describe() (options, state any) { return v.description, nil }

// Name returns the name of the strategy.
func (v *version) Name() string { return "rules" }
