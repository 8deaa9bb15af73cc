package registry

import (
	"fmt"
	"slices"

	"github.com/weir-go/weir/pipeline"
)

// checkCycles finds a pipeline that would contain itself, whose executions would never end.
func checkCycles(inForce []*build) error {
	byHandle := make(map[*pipeline.Pipeline]*build, len(inForce))
	for _, b := range inForce {
		byHandle[b.instance.handle.Pipeline()] = b
	}
	const visiting, clean = 1, 2
	state := make(map[*build]int)
	var path []id
	var visit func(b *build) error
	visit = func(b *build) error {
		state[b] = visiting
		path = append(path, b.instance.id)
		for _, inner := range buildsIn(b.contains, byHandle) {
			if state[inner] == clean {
				continue
			}
			if state[inner] == visiting {
				err := fmt.Errorf("%w: %s contains %s", ErrCycle, b.instance.id, inner.instance.id)
				return &faultError{err, path[slices.Index(path, inner.instance.id):]}
			}
			if err := visit(inner); err != nil {
				return err
			}
		}
		state[b] = clean
		path = path[:len(path)-1]
		return nil
	}
	for _, b := range inForce {
		if state[b] == 0 {
			if err := visit(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// buildsIn returns the builds of the pipelines. In place of a pipeline that is not of the registry it returns the
// builds of those embedded in it.
func buildsIn(pipelines []*pipeline.Pipeline, byHandle map[*pipeline.Pipeline]*build) []*build {
	var found []*build
	for _, p := range pipelines {
		if b := byHandle[p]; b != nil {
			found = append(found, b)
			continue
		}
		found = append(found, buildsIn(containedIn(p), byHandle)...)
	}
	return found
}

// checkContained finds a build with a pipeline that was removed or closed after the build function had got it.
func checkContained(inForce, builds []*build) error {
	there := make(map[*pipeline.Pipeline]bool, len(inForce))
	for _, b := range inForce {
		there[b.instance.handle.Pipeline()] = true
	}
	for _, b := range builds {
		if p := closedIn(b.contains, there); p != nil {
			err := fmt.Errorf("%w, or closed: %s, which pipeline %s contains", ErrRemoved, id{p.Name(), p.Instance()}, b.instance.id)
			return &faultError{err, []id{b.instance.id}}
		}
	}
	return nil
}

// closedIn returns a closed pipeline among the pipelines and those embedded in them, or nil. Pipelines in there are
// open.
func closedIn(pipelines []*pipeline.Pipeline, there map[*pipeline.Pipeline]bool) *pipeline.Pipeline {
	for _, p := range pipelines {
		if there[p] {
			continue
		}
		if p.Closed() {
			return p
		}
		if inner := closedIn(containedIn(p), there); inner != nil {
			return inner
		}
	}
	return nil
}

// containedIn returns the pipelines that are embedded directly in p.
func containedIn(p *pipeline.Pipeline) []*pipeline.Pipeline {
	var inner []pipeline.Strategy
	for _, s := range p.Strategies() {
		inner = append(inner, s)
	}
	return contained(inner)
}

// checkRemoved finds a pipeline that contains one of those to be removed and could not run without it.
func (r *Registry) checkRemoved(inForce []*build, remove []string) error {
	gone := make(map[*pipeline.Pipeline]*build)
	for _, name := range remove {
		for _, i := range r.definitions[name].instances {
			gone[i.handle.Pipeline()] = &build{instance: i}
		}
	}
	if len(gone) == 0 {
		return nil
	}
	for _, b := range inForce {
		for _, inner := range buildsIn(b.contains, gone) {
			err := fmt.Errorf("registry: %s cannot be removed: pipeline %s contains it", inner.instance.id, b.instance.id)
			return &faultError{err, []id{b.instance.id}}
		}
	}
	return nil
}
