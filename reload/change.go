package reload

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/model"
)

// Change returns the change for [registry.Registry.Apply] that turns a registry with the pipelines of previous into
// one with those of f. If previous is nil, all pipelines are defined.
//
// Pipelines that mean the same in both files are left alone: comments, the order of fields and of pipelines, aliases
// and the way a value is written make no difference. A changed limiter or budget that is shared changes all pipelines
// that use it, and keeps what it has counted. If the two files were parsed with different [Kinds], all pipelines are
// defined again, because their functions can be different.
func (f *File) Change(previous *File) registry.Change {
	if previous == nil {
		previous = &File{}
	}
	before := make(map[string]*model.Pipeline)
	for _, p := range previous.content.Pipelines {
		before[p.Name] = p
	}
	c := registry.Change{Define: make(map[string]registry.BuildFunc)}
	for _, p := range f.content.Pipelines {
		if previous.kinds != f.kinds || !sameMeaning(before[p.Name], p) {
			c.Define[p.Name] = f.buildFunc(p)
		}
		delete(before, p.Name)
	}
	for _, p := range previous.content.Pipelines {
		if before[p.Name] != nil {
			c.Remove = append(c.Remove, p.Name)
		}
	}
	return c
}

// sameMeaning reports whether two pipelines with the same name are built in the same way. a can be nil.
func sameMeaning(a, b *model.Pipeline) bool {
	return a != nil && a.DoubleSlash == b.DoubleSlash && reflect.DeepEqual(a.Strategies, b.Strategies)
}

// buildFunc returns the function that builds p. Its errors say where in the file the strategy is.
func (f *File) buildFunc(p *model.Pipeline) registry.BuildFunc {
	return func(b *registry.Builder) error {
		for i, s := range p.Strategies {
			made, err := builder{b, f.kinds, p}.strategy(s)
			if err != nil {
				at := p.Places[i]
				return fmt.Errorf("%s:%d:%d: %s: %w", cmp.Or(f.name, "(file)"), at.Line, at.Column, at.Path, err)
			}
			b.Add(made)
		}
		return nil
	}
}
