package reload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/store"
)

// A Section describes a top-level field of the program in a file, beside limiters and pipelines, such as the routes of a
// server. O is the struct that the field is decoded into. Each function can be nil. The functions must not modify o, and
// must return the same for the same o.
type Section[O any] struct {
	// Doc is the description of the field in the JSON schema.
	Doc string
	// Required reports whether files without the field are refused.
	Required bool
	// Complete reports whether a file with the field names only what is registered, so that [Kinds.AcceptUnknown] does
	// not apply to it. It is for tools that check files without the program that runs them.
	Complete bool
	// Names gives names to functions and values that are made from o, such as key functions that limiters of the same
	// file can then name. It is also called if o has problems, so that they are all found: values in o can be missing.
	Names func(n *Names, o O)
	// Check compares o with the rest of the file, which can have problems. It is called if o has none: what is wrong in
	// o itself is up to the Validate methods of O and of the types in it. Each problem of a [weir.OptionsError] is
	// reported where its field is written, any other error at the section.
	Check func(f *File, o O) error
	// Explain returns what [File.Explain] writes about the section. If nil, it is the result of a method
	// Explain() string of O or, without one, a line for each field that the file sets or that has a default.
	Explain func(f *File, o O) string
	// Pipelines returns the functions that build the section's pipelines, by name. The pipelines are in the same
	// [registry.Change] as those of the file, which cannot have the same names. They are built again if o has changed,
	// or a limiter that o names. A file with such a section needs no other pipelines.
	Pipelines func(o O) map[string]func(b *SectionBuilder) error
}

// RegisterSection registers a top-level field for a part of the program that is not a pipeline. It is decoded as
// strictly as the rest of the file. The rules of [RegisterStrategy] apply to O, and in the tag reload a field can also
// have
//
//	limiter      the text is the name of a limiter of the file, which the section's pipelines can use
//	pipeline     the text is the name of a pipeline of the file
//	in=FIELD     the text is the name of an entry of that field of O, a map
//	fixed        the value cannot change while the program runs: a Watcher refuses such a file
//
// A name that does not exist is reported where it is written. In a list or a map, each text is a name.
//
// The program gets the decoded value from [SectionOf]. [Options.InForce] tells it when a file comes into force.
func RegisterSection[O any](k *Kinds, field string, s Section[O]) {
	t := reflect.TypeFor[O]()
	taken := append(slices.Collect(maps.Keys(k.sections)),
		model.LimitersField, model.BudgetsField, model.PipelinesField, model.AllowEmptyField)
	if !k.allows(sectionWhat, field, t, false, taken) {
		return
	}
	kind := model.SectionKind{Options: t, Doc: s.Doc, Required: s.Required, Complete: s.Complete}
	if s.Names != nil {
		kind.Names = func(n *model.Names, options any) { s.Names(&Names{n}, options.(O)) }
	}
	if s.Check != nil {
		kind.Check = func(f *model.File, options any) error {
			return s.Check(&File{kinds: k, content: *f, unchecked: true}, options.(O))
		}
	}
	if s.Explain != nil {
		kind.Explain = func(f *model.File, options any) string { return s.Explain(&File{kinds: k, content: *f}, options.(O)) }
	}
	if s.Pipelines != nil {
		kind.Builds = func(options any) map[string]any {
			builds := make(map[string]any)
			for name, build := range s.Pipelines(options.(O)) {
				builds[name] = build
			}
			return builds
		}
	}
	k.sections = with(k.sections, field, kind)
}

// SectionOf returns the value of a section of f. ok is false if f does not have the field, or if it was registered with
// another type. The value must not be modified.
func SectionOf[O any](f *File, field string) (o O, ok bool) {
	for _, s := range f.content.Sections {
		if s.Name == field {
			o, ok = s.Options.(O)
		}
	}
	return o, ok
}

// Names are the names that a section gives to functions and values, for the rest of the file to use. A name that the
// program has registered, or another section has given, is a problem of the section.
//
// A key function or a store is made from options, and made again for each pipeline that is built with it. If the options
// have changed in the next version of the file, the pipelines that use the name are built again. Options are compared as
// package go.yaml.in/yaml/v4 writes them, so fields with the tag "-" make no difference.
type Names struct{ names *model.Names }

// Key gives a name to a key function, as [Kinds.RegisterKey] does. build returns the function for the options from. If
// build returns an error, the file does not come into force.
func (n *Names) Key(name string, from any, build func() (func(ctx context.Context) string, error)) {
	n.names.Give(model.KeyFunction, name, from, build == nil, func() (any, error) { return build() })
}

// Handle gives a name to a handle function that is made from the options from, as [Kinds.RegisterHandle] does.
func (n *Names) Handle(name string, from any, handle func(result any, err error) bool) {
	n.names.Give(model.HandleFunction, name, from, handle == nil, func() (any, error) { return handle, nil })
}

// Store gives a name to a store, as [Kinds.RegisterStore] does. open returns the store for the options from, the same
// one for each call: it must stay open as long as the registry. If open returns an error, the file does not come into
// force.
func (n *Names) Store(name string, from any, open func() (*store.Store, error)) {
	n.names.Give(model.LimiterStore, name, from, open == nil, func() (any, error) { return open() })
}

// A SectionBuilder builds a pipeline of a section. Like the [registry.Builder] in it, it must not be used after the
// build function has returned, and is not safe for concurrent use.
type SectionBuilder struct {
	*registry.Builder
	// File is the file with the section.
	File    *File
	builder builder
	section *model.Section
}

// Limiter returns a limiter of the file that the section names in a field with the tag reload:"limiter". It is the
// same that the pipelines of the file use. If it is partitioned, it finds the key in the context of each call; see
// [SectionBuilder.Partitioned].
func (b *SectionBuilder) Limiter(name string) (limiter.Limiter, error) {
	l := b.section.Limiters[name]
	if l == nil {
		return nil, fmt.Errorf("the section %s does not name the limiter %q in a field with the tag reload:\"limiter\"", b.section.Name, name)
	}
	return b.builder.limiter(name, l)
}

// Partitioned is Limiter for a limiter that is partitioned. It gets the context twice: as the resource, which its key
// function gets, and as the context that ends the wait. A chain is not partitioned, even if its members are.
func (b *SectionBuilder) Partitioned(name string) (limiter.Partitioned[context.Context], error) {
	l, err := b.Limiter(name)
	if err != nil {
		return nil, err
	}
	p, ok := l.(*byContext)
	if !ok {
		return nil, fmt.Errorf("limiter %q: it is not partitioned", name)
	}
	return p.partitioned, nil
}

// sectionBuildFunc returns the function that builds a pipeline of s.
func (f *File) sectionBuildFunc(s *model.Section, name string) registry.BuildFunc {
	return func(b *registry.Builder) error {
		build, _ := s.Builds[name].(func(*SectionBuilder) error)
		err := errors.New("its build function is nil")
		if build != nil {
			err = build(&SectionBuilder{Builder: b, File: f, builder: f.builder(b, nil), section: s})
		}
		if err != nil {
			return f.at(s.Place, err)
		}
		return nil
	}
}

// checkFixed refuses a file in which a fixed field of a section is not what it is in previous.
func (f *File) checkFixed(previous *File) error {
	if previous == nil {
		return nil
	}
	var found document.Problems
	for field, kind := range f.kinds.sections {
		was, is := previous.section(field, kind), f.section(field, kind)
		model.EachChanged(field, reflect.ValueOf(was.Options), reflect.ValueOf(is.Options), func(path string) {
			at, written := is.Places[path]
			if !written {
				at = is.Place
			}
			at.Path = path
			found.Add(at, "cannot change while the program runs; restart it with this file, or undo the change")
		})
	}
	return newFileError(f.name, found)
}

// section returns a section, with zero options if the file does not have it.
func (f *File) section(field string, kind model.SectionKind) *model.Section {
	for _, s := range f.content.Sections {
		if s.Name == field {
			return s
		}
	}
	return &model.Section{Options: reflect.Zero(kind.Options).Interface(), Place: document.Place{Line: 1, Column: 1}}
}
