package simulate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// File returns a Config of the pipelines of a configuration file, as package reload reads it. name is the name of the file
// for messages.
//
// A file can name functions and stores of its program. register registers the ones that are known here; it is called for
// each instance, and can be nil. For each other name that the pipeline needs, Result.Assumed says what the simulation
// uses in its place:
//
//	key       the key of the simulated request, see [Key]
//	permits   the cost of the simulated request, see [Cost]
//	handle    the default of the strategy
//	fallback  an action that succeeds
//	control   a new control, by which no circuit is isolated
//	error     the default error of chaos_fault, [chaos.ErrInjected]
//	outcome   [chaos.ErrInjected]
//	behavior  a behavior that does nothing
//	store     [Setup.Store]
//
// Other kinds of strategies and limiters than weir's own must be registered if the pipeline needs them.
func File(name string, data []byte, register func(s *Setup, k *reload.Kinds)) Config {
	return func(s *Setup) (registry.Change, error) {
		k := reload.NewKinds()
		if register != nil {
			register(s, k)
		}
		k.AcceptUnknown()
		k.Resolve(s.resolve)
		f, err := reload.Parse(name, data, k)
		if err != nil {
			return registry.Change{}, err
		}
		change := f.Change(nil)
		pipeline := s.run.scenario.Pipeline
		if all := f.Pipelines(); pipeline == "" && len(all) == 1 {
			pipeline = all[0]
		}
		// What the others need is not assumed. A pipeline that is not in the list is of a section, and can need any.
		if needed := map[string]bool{}; s.need(f, pipeline, needed) {
			maps.DeleteFunc(change.Define, func(name string, _ registry.BuildFunc) bool { return !needed[name] })
		}
		return change, nil
	}
}

// need adds the pipeline of that name and the ones that are embedded in it to needed, and says which of their limiters are in
// stores. It reports whether it is in the list of pipelines of f.
func (s *Setup) need(f *reload.File, pipeline string, needed map[string]bool) bool {
	if !slices.Contains(f.Pipelines(), pipeline) {
		return false
	}
	if needed[pipeline] {
		return true
	}
	needed[pipeline] = true
	for _, strategy := range f.Strategies(pipeline) {
		s.need(f, strategy.Pipeline, needed)
		s.assumeStored(f, strategy.Limiter)
	}
	return true
}

// assumeStored says in which stores a limiter and the members of a chain are.
func (s *Setup) assumeStored(f *reload.File, l reload.LimiterInfo) {
	if l.Store != "" {
		s.Assume(fmt.Sprintf("The limiter %q is in the store %q.", l.Name, l.Store))
	}
	for _, name := range l.Members {
		if member, ok := f.Limiter(name); ok {
			s.assumeStored(f, member)
		}
	}
}

// resolve returns what is assumed of a name that the program registers.
func (s *Setup) resolve(what, name string) (thing any, ok bool) {
	var sentence string
	switch what {
	case "key":
		thing, sentence = Key, "The key %q is the key of the request."
	case "permits":
		thing, sentence = Cost, "The permits %q are the cost of the request."
	case "handle":
		thing, sentence = nil, "The handle %q is the default of the strategy."
	case "fallback":
		thing, sentence = succeed, "The fallback %q succeeds."
	case "control":
		thing, sentence = new(circuitbreaker.Control), "The control %q isolates no circuit."
	case "error":
		thing, sentence = nil, "The error %q is that of any injected fault."
	case "outcome":
		thing, sentence = fail, "The outcome %q is an injected fault."
	case "behavior":
		thing, sentence = nothing, "The behavior %q does nothing."
	case "store":
		return s.Store(name), true // which says it itself
	default:
		return nil, false
	}
	s.Assume(fmt.Sprintf(sentence, name))
	return thing, true
}

func succeed(context.Context, any, error) (any, error) { return nil, nil }
func fail(context.Context) (chaos.Result, bool)        { return chaos.Result{Err: chaos.ErrInjected}, true }
func nothing(context.Context) error                    { return nil }
