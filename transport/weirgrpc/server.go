package weirgrpc

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/transport/internal/admission"
)

// GlobalPolicy is the name of [LimitsOptions.Global] in events and rejections.
const GlobalPolicy = "global"

// ErrUnknownPolicy matches the error of [NewLimits] if [LimitsOptions.Methods] names a policy that does not exist.
var ErrUnknownPolicy = errors.New("weirgrpc: unknown policy")

// LimitsOptions are the options of [NewLimits]. The zero value limits nothing.
type LimitsOptions struct {
	// Name is the name of the pipeline in events. The name of the strategy is that of
	// the policy. The default is "grpc".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Global is asked about every call that is not exempt, before the policies of its
	// method. If two interceptors of these Limits are in one chain, it is asked once.
	// With the zero Policy there is no global limit.
	Global Policy `json:"-" yaml:"-"`
	// Policies are the policies that Methods name. The name [GlobalPolicy] is
	// reserved.
	Policies map[string]Policy `json:"-" yaml:"-"`
	// Registry has pipelines that Methods can name like Policies; see [PipelinePolicy].
	// If nil, Methods can name only Policies.
	Registry *registry.Registry `json:"-" yaml:"-"`
	// Methods has the names of the policies of methods, in the order in which they are
	// asked. A key is "/package.Service/Method", "/package.Service/*" for the other
	// methods of a service, or "*" for all others. A method has the policies of the
	// most specific key, and not those of another. By default there is only Global.
	Methods map[string][]string `json:"methods,omitempty" yaml:"methods,omitempty"`
	// Exempt has the methods that pass without any limiter, the global one included,
	// in the form of the keys of Methods:
	//
	//	"/grpc.health.v1.Health/*", "/grpc.reflection.v1.ServerReflection/*",
	//	"/grpc.reflection.v1alpha.ServerReflection/*"
	//
	// The most specific key of Exempt and Methods applies. By default there are none.
	Exempt []string `json:"exempt,omitempty" yaml:"exempt,omitempty"`

	// Failed reports whether a code is a failure of the handler, for circuit breakers
	// and other strategies of a [PipelinePolicy]. If nil, the failures are UNKNOWN,
	// DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and DATA_LOSS.
	Failed func(code codes.Code) bool `json:"-" yaml:"-"`
	// Headers selects the metadata that tells clients what is left of their quota. It
	// is in the header of a successful response, and in the trailer of an error. The
	// default is [NoHeaders].
	Headers Headers `json:"headers,omitempty" yaml:"headers,omitempty"`
	// Shadow sets [Policy.Shadow] of every policy that is not a pipeline.
	Shadow bool `json:"shadow,omitempty" yaml:"shadow,omitempty"`
	// Listener receives the decisions of the policies, as the events and
	// measurements of strategies/ratelimit and as [EventFailed], [EventFailedOpen]
	// and [EventTimeout]. If nil, nothing is reported.
	Listener pipeline.Listener `json:"-" yaml:"-"`
}

// Limits are the policies of a server. Make them with [NewLimits]; the zero value is not usable. They own no limiter:
// close the limiters after the server has stopped. Limits are safe for concurrent use.
type Limits struct {
	options   LimitsOptions
	admission *admission.Limits[*Request]
	routes    routes
}

// NewLimits returns Limits with the policies of o. If o is nil, the defaults apply. The error is a [weir.OptionsError] with
// everything that is wrong in all policies. It also matches [ErrUnknownPolicy] if Methods names an unknown policy.
func NewLimits(o *LimitsOptions) (*Limits, error) {
	l := new(Limits)
	if o != nil {
		l.options = *o
	}
	l.options.Name = cmp.Or(l.options.Name, "grpc")
	if l.options.Failed == nil {
		l.options.Failed = handlerFailedByDefault
	}
	l.admission = transport.NewLimits(l.options.Listener)

	var problems validate.Problems
	l.options.Headers.validate(&problems)
	var global *preparedPolicy
	if !reflect.ValueOf(l.options.Global).IsZero() {
		global = l.prepare(&problems, "Global", GlobalPolicy, l.options.Global)
	}
	policies := make(map[string]*preparedPolicy, len(l.options.Policies))
	for _, name := range slices.Sorted(maps.Keys(l.options.Policies)) {
		path := fmt.Sprintf("Policies[%s]", name)
		switch name {
		case "":
			problems.Add(path, nil, "must have a name")
		case GlobalPolicy:
			problems.Add(path, nil, "must have another name, which is reserved for {Global}")
		}
		policies[name] = l.prepare(&problems, path, name, l.options.Policies[name])
	}
	l.makeRoutes(&problems, global, policies)
	if err := problems.Err("weirgrpc"); err != nil {
		return nil, err
	}
	return l, nil
}

// handlerFailedByDefault is the default of [LimitsOptions.Failed]: the codes that say that the server, not the client, has made
// a mistake, as OpenTelemetry's semantic conventions have them.
func handlerFailedByDefault(code codes.Code) bool {
	switch code {
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
		return true
	}
	return false
}

// prepare returns p ready for calls, with the defaults of the Limits. It adds everything that is wrong with p to
// problems; path is the path of p in the options.
func (l *Limits) prepare(problems *validate.Problems, path, name string, p Policy) *preparedPolicy {
	problems.Include(path, p.validate())
	if p.Partitioned != nil && p.Key == nil {
		p.Key = newAddressFinder(nil).key
	}
	if p.Headers == NoHeaders {
		p.Headers = l.options.Headers
	}
	p.Shadow = p.Shadow || l.options.Shadow && p.Pipeline == nil
	prepared := &preparedPolicy{Policy: p.core(l.options.Name, name), options: p}
	if p.Headers != NoHeaders {
		prepared.quota = admission.NewQuotaSource(&prepared.Policy, p.Quota, p.Window)
	}
	return prepared
}

// find returns the policy called name. If there is none, it makes a policy of the registry's pipeline called name.
func (l *Limits) find(policies map[string]*preparedPolicy, name string) (*preparedPolicy, error) {
	if p := policies[name]; p != nil {
		return p, nil
	}
	r := l.options.Registry
	if r == nil || !r.Defined(name) {
		return nil, admission.UnknownPolicyError(ErrUnknownPolicy, name, policies)
	}
	p, err := r.Get(name)
	if err != nil {
		return nil, fmt.Errorf("pipeline %q: %w", name, err)
	}
	var none validate.Problems // a pipeline alone is a valid policy
	return l.prepare(&none, "", name, PipelinePolicy(p)), nil
}
