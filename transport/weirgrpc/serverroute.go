package weirgrpc

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/transport/internal/admission"
)

// A route has the policies of a method. The zero route has none.
type route struct {
	limits      *Limits
	policies    []*preparedPolicy // asked when a call begins; the global one first
	global      bool              // the first policy is the global one
	received    []*preparedPolicy // asked about each message that a stream receives
	sent        []*preparedPolicy // asked about each message that a stream sends
	timed       *preparedPolicy   // the policy with the shortest Timeout; nil: none
	sendsQuotas bool              // a policy sends quota metadata
	releases    bool              // a policy holds nothing after a stream has begun

	endsHandlers bool // a Timeout or a pipeline can end the context of a handler before the call ends
}

// limitsNothing reports whether the method has no policies.
func (r *route) limitsNothing() bool { return len(r.policies) == 0 }

// routes find the route of a method. They are made of the options only, so a client that makes up methods cannot let
// them grow.
type routes struct {
	methods  map[string]*route // by "/package.Service/Method"
	services map[string]*route // by "/package.Service"
	others   *route
}

// of returns the route of a method.
func (r *routes) of(method string) *route {
	if found := r.methods[method]; found != nil {
		return found
	}
	if len(r.services) > 0 {
		if slash := strings.LastIndexByte(method, '/'); slash > 0 {
			if found := r.services[method[:slash]]; found != nil {
				return found
			}
		}
	}
	return r.others
}

// set makes found the route of the methods of a pattern. It returns false if pattern is not one.
func (r *routes) set(pattern string, found *route) bool {
	if pattern == "*" {
		r.others = found
		return true
	}
	slash := strings.LastIndexByte(pattern, '/')
	if slash < 2 || pattern[0] != '/' || slash == len(pattern)-1 || strings.Contains(pattern[1:slash], "/") {
		return false
	}
	service, method := pattern[:slash], pattern[slash+1:]
	switch {
	case strings.Contains(service, "*") || method != "*" && strings.Contains(method, "*"):
		return false
	case method == "*":
		r.services[service] = found
	default:
		r.methods[pattern] = found
	}
	return true
}

const methodsProblem = `must have the form "/package.Service/Method", "/package.Service/*" or "*"`

// makeRoutes makes the routes of the options. It adds everything that is wrong with them to problems.
func (l *Limits) makeRoutes(problems *validate.Problems, policies *admission.Set[Policy, preparedPolicy]) {
	newRoute := func(path string, names []string) *route {
		r := &route{limits: l}
		r.policies, r.global = policies.Route(problems, path, names)
		r.prepare()
		return r
	}
	l.routes = routes{methods: map[string]*route{}, services: map[string]*route{}, others: newRoute("", nil)}
	for _, pattern := range slices.Sorted(maps.Keys(l.options.Methods)) {
		path := fmt.Sprintf("Methods[%s]", pattern)
		if !l.routes.set(pattern, newRoute(path, l.options.Methods[pattern])) {
			problems.Add(path, nil, methodsProblem)
		}
	}
	for i, pattern := range l.options.Exempt {
		path := fmt.Sprintf("Exempt[%d]", i)
		if _, limited := l.options.Methods[pattern]; limited {
			problems.Add(path, pattern, "must not be in {Methods}, too")
			continue
		}
		if !l.routes.set(pattern, &route{limits: l}) {
			problems.Add(path, pattern, methodsProblem)
		}
	}
}

// prepare makes what follows from the policies.
func (r *route) prepare() {
	for _, p := range r.policies {
		o := &p.options
		r.sendsQuotas = r.sendsQuotas || p.sendsQuota
		r.releases = r.releases || o.Streams == StreamAdmit
		r.endsHandlers = r.endsHandlers || o.Timeout > 0 || p.Limit.Pipeline != nil
		if o.Timeout > 0 && (r.timed == nil || o.Timeout < r.timed.options.Timeout) {
			r.timed = p
		}
		if o.Streams == StreamReceived || o.Streams == StreamMessages {
			r.received = append(r.received, p.clone())
		}
		if o.Streams == StreamSent || o.Streams == StreamMessages {
			r.sent = append(r.sent, p.clone())
		}
	}
}
