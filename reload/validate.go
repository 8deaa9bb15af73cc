package reload

import (
	"cmp"
	"reflect"
	"regexp"
	"strings"
)

// validate asks the struct that v points to what is wrong with it, and finds the
// places for the answers: weir's own options say "TokenLimit is 0, must be …; …".
func (d *decoder) validate(v reflect.Value, s *structure) {
	checked, ok := reflect.TypeAssert[interface{ Validate() error }](v)
	if !ok {
		return
	}
	if err := checked.Validate(); err != nil {
		d.wrong(err, s)
	}
}

// wrong adds a problem for each thing that err says of the struct.
func (d *decoder) wrong(err error, s *structure) {
	for _, clause := range clauses(err) {
		d.clause(clause, s)
	}
}

// clauses takes an error apart into what is wrong with each field.
func clauses(err error) []string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		var texts []string
		for _, e := range joined.Unwrap() {
			all = append(all, clauses(e)...)
			texts = append(texts, e.Error())
		}
		if strings.Join(texts, "\n") == err.Error() { // errors.Join: there is nothing but these
			return all
		}
	}
	return strings.Split(err.Error(), "; ")
}

// goNames finds what may be the name of a field.
var goNames = regexp.MustCompile(`[A-Z]\w*`)

// clause adds one problem where the first field that it names is written. If that
// has a problem already there is no need for another: what was not decoded is 0.
func (d *decoder) clause(clause string, s *structure) {
	byGoName := make(map[string]field, len(s.fields))
	for _, f := range s.fields {
		byGoName[f.goName] = f
	}
	subject, begins := "", 0
	for _, at := range goNames.FindAllStringIndex(clause, -1) {
		f, ok := byGoName[clause[at[0]:at[1]]]
		if ok && s.failed[f.name] {
			return
		}
		if ok && subject == "" {
			subject, begins = f.name, at[0]
		}
	}
	if subject == "" {
		if len(s.failed) == 0 {
			d.add(s.at, s.path, "%s", clause)
		}
		return
	}
	// What comes before the name is the prefix of the whole error.
	if prefix := clause[:begins]; strings.HasSuffix(prefix, ": ") {
		clause = clause[begins:]
	}
	clause = goNames.ReplaceAllStringFunc(clause, func(word string) string {
		return cmp.Or(byGoName[word].name, word)
	})
	if at := s.values[subject]; at != nil {
		d.add(at, child(s.path, subject), "%s", clause)
		return
	}
	d.add(s.at, s.path, "%s", clause)
}
