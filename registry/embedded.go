package registry

import (
	"fmt"
	"slices"

	"github.com/weir-go/weir/pipeline"
)

// A byHandle finds versions by the handle of their pipeline.
type byHandle map[*pipeline.Pipeline]*version

func indexByHandle(versions []*version) byHandle {
	h := make(byHandle, len(versions))
	for _, v := range versions {
		h[v.instance.handle.Pipeline()] = v
	}
	return h
}

// split returns the versions of the pipelines that are in h, and the pipelines that are not. It looks into each
// pipeline that is not in h and also splits the pipelines that are embedded there.
func (h byHandle) split(pipelines []*pipeline.Pipeline) (known []*version, others []*pipeline.Pipeline) {
	for _, p := range pipelines {
		if v := h[p]; v != nil {
			known = append(known, v)
			continue
		}
		var strategies []pipeline.Strategy
		for _, s := range p.Strategies() {
			strategies = append(strategies, s)
		}
		innerKnown, innerOthers := h.split(contained(strategies))
		known = append(known, innerKnown...)
		others = append(append(others, p), innerOthers...)
	}
	return known, others
}

// contained returns the pipelines that are embedded directly among the strategies.
func contained(strategies []pipeline.Strategy) []*pipeline.Pipeline {
	var all []*pipeline.Pipeline
	for _, s := range strategies {
		if e, ok := s.(interface{ Pipeline() *pipeline.Pipeline }); ok {
			all = append(all, e.Pipeline())
		}
	}
	return all
}

// checkCycles returns an error if a pipeline would contain itself: its executions would never end.
func checkCycles(inForce []*version, h byHandle) error {
	const visiting, clean = 1, 2
	state := make(map[*version]int)
	var path []id
	var visit func(v *version) error
	visit = func(v *version) error {
		state[v] = visiting
		path = append(path, v.instance.id)
		inside, _ := h.split(v.contains)
		for _, inner := range inside {
			if state[inner] == clean {
				continue
			}
			if state[inner] == visiting {
				err := fmt.Errorf("%w: %s contains %s", ErrCycle, v.instance.id, inner.instance.id)
				return &faultError{err, path[slices.Index(path, inner.instance.id):]}
			}
			if err := visit(inner); err != nil {
				return err
			}
		}
		state[v] = clean
		path = path[:len(path)-1]
		return nil
	}
	for _, v := range inForce {
		if state[v] == 0 {
			if err := visit(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkContained returns an error if a version contains a pipeline that was removed or closed after the build
// function had got it.
func checkContained(versions []*version, h byHandle) error {
	for _, v := range versions {
		_, others := h.split(v.contains)
		for _, p := range others {
			if p.Closed() {
				err := fmt.Errorf("%w: pipeline %s contains %s, which was removed or closed", ErrRemoved, v.instance.id, id{p.Name(), p.Instance()})
				return &faultError{err, []id{v.instance.id}}
			}
		}
	}
	return nil
}

// checkRemoved returns an error if a pipeline that stays contains one that is to be removed: the outer pipeline could
// not run without the inner one.
func (r *Registry) checkRemoved(inForce []*version, remove []string) error {
	removed := make(byHandle)
	for _, name := range remove {
		for _, i := range r.definitions[name].instances {
			if i.current != nil {
				removed[i.handle.Pipeline()] = i.current
			}
		}
	}
	if len(removed) == 0 {
		return nil
	}
	for _, v := range inForce {
		if inside, _ := removed.split(v.contains); len(inside) > 0 {
			err := fmt.Errorf("registry: %s cannot be removed: pipeline %s contains it", inside[0].instance.id, v.instance.id)
			return &faultError{err, []id{v.instance.id}}
		}
	}
	return nil
}
