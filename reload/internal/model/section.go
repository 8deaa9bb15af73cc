package model

import (
	"maps"
	"reflect"
	"slices"

	"github.com/weir-go/weir/reload/internal/document"
)

// A SectionKind is a top-level field of the program. Its functions get the decoded value, a struct of the type Options.
type SectionKind struct {
	Options  reflect.Type
	Doc      string
	Required bool
	Complete bool // AcceptUnknown does not apply to files with this section
	Names    func(n *Names, options any)
	Check    func(f *File, options any) error
	Explain  func(f *File, options any) string
	// Builds returns the build functions of the section's pipelines by name, in the form that package reload knows. If
	// nil, the section has no pipelines.
	Builds func(options any) map[string]any
}

// A Section is a top-level field of the program in a file.
type Section struct {
	Name    string
	Options any
	// Limiters has the shared limiters that the section names, by name.
	Limiters map[string]*Limiter
	// Builds has the build functions of the section's pipelines by name.
	Builds map[string]any
	// Place is where the section stands, and Places has where its fields with the rule Fixed are written, by path.
	Place  document.Place
	Places map[string]document.Place
}

// Pipelines returns the sorted names of the section's pipelines.
func (s *Section) Pipelines() []string { return slices.Sorted(maps.Keys(s.Builds)) }

// SameMeaning reports whether the pipelines of two sections are built in the same way.
func (s *Section) SameMeaning(other *Section) bool {
	return s.Name == other.Name && reflect.DeepEqual(s.Options, other.Options) && reflect.DeepEqual(s.Limiters, other.Limiters)
}

// Names collects the names that the sections of a file give to functions and values.
type Names struct {
	// Given has what the names stand for, by purpose and name.
	Given map[Purpose]map[string]Given
	// Taken reports whether the program has registered the name.
	Taken func(what Purpose, name string) bool
	// Refused is called for a name that cannot be given, with the reason.
	Refused func(what Purpose, name, reason string)
}

// A Given is a function or value that a section makes.
type Given struct {
	// From is the text of the options that it is made from. If the texts are the same, the functions or values are, too.
	From string
	// New is a func() (T, error), where T is the type of what is registered for the purpose.
	New any
}

// Give adds a name, unless it is refused.
func (n *Names) Give(what Purpose, name string, from, newFunc any) {
	_, twice := n.Given[what][name]
	switch {
	case name == "":
		n.Refused(what, name, "the name is empty")
	case reflect.ValueOf(newFunc).IsNil():
		n.Refused(what, name, "the function is nil")
	case twice || n.Taken(what, name):
		n.Refused(what, name, "the name is taken")
	default:
		if n.Given == nil {
			n.Given = make(map[Purpose]map[string]Given)
		}
		if n.Given[what] == nil {
			n.Given[what] = make(map[string]Given)
		}
		n.Given[what][name] = Given{Text(from), newFunc}
	}
}

// From returns a text for each name in the options that a section has given: what the name stands for, so that
// [reflect.DeepEqual] sees that a limiter or strategy is to be built again.
func (n *Names) From(options any) (all []string) {
	if options == nil || len(n.Given) == 0 {
		return nil
	}
	v := reflect.ValueOf(options)
	for _, f := range FieldsOf(v.Type()) {
		if f.Purpose == "" {
			continue
		}
		if g, ok := n.Given[f.Purpose][v.FieldByIndex(f.Index).String()]; ok {
			all = append(all, f.Name+": "+g.From)
		}
	}
	return all
}
