package reload

import (
	"reflect"
	"slices"

	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/model"
)

// Change returns the change for [registry.Registry.Apply] that turns a registry with the pipelines of previous into
// one with those of f. If previous is nil, all pipelines are defined.
//
// Pipelines that mean the same in both files are left alone: comments, the order of fields and of pipelines, aliases
// and the way a value is written make no difference. A changed limiter or budget that is shared changes all pipelines
// that use it, and keeps what it has counted. The pipelines of a section change together. If the two files were parsed
// with different [Kinds], all pipelines are defined again, because their functions can be different.
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
	}
	for _, s := range f.content.Sections {
		if previous.kinds != f.kinds || !slices.ContainsFunc(previous.content.Sections, s.SameMeaning) {
			for _, name := range s.Pipelines() {
				c.Define[name] = f.sectionBuildFunc(s, name)
			}
		}
	}
	stays := make(map[string]bool)
	for _, name := range f.defined() {
		stays[name] = true
	}
	for _, name := range previous.defined() {
		if !stays[name] {
			c.Remove = append(c.Remove, name)
		}
	}
	return c
}

// sameMeaning reports whether two pipelines with the same name are built in the same way. a can be nil.
func sameMeaning(a, b *model.Pipeline) bool {
	return a != nil && reflect.DeepEqual(a.Strategies, b.Strategies)
}

// buildFunc returns the function that builds p. Its errors say where in the file the strategy is.
func (f *File) buildFunc(p *model.Pipeline) registry.BuildFunc {
	return func(b *registry.Builder) error {
		for i, s := range p.Strategies {
			made, err := f.builder(b, p).strategy(s)
			if err != nil {
				return f.at(p.Places[i], err)
			}
			b.Add(made)
		}
		return nil
	}
}
