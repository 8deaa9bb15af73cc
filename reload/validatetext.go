package reload

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// invalidText finds the places of fields by the Go names in the text of an error of weir's own that is no
// [weir.OptionsError]. It goes when the packages of strategies and store return those.
func (d *decoder) invalidText(err error, s *structure) bool {
	if !strings.Contains(err.Error(), "invalid options: ") {
		return false
	}
	for clause := range strings.SplitSeq(err.Error(), "; ") {
		d.clause(clause, s)
	}
	return true
}

// goNames finds what may be the name of a field.
var goNames = regexp.MustCompile(`[A-Z]\w*`)

// clause adds one problem where the first field that it names is written. If that
// has a problem already there is no need for another: what was not decoded is 0.
func (d *decoder) clause(clause string, s *structure) {
	names := make(map[string]model.Field, len(s.fields))
	for _, f := range s.fields {
		names[f.GoName] = f
	}
	subject, begins := "", 0
	for _, at := range goNames.FindAllStringIndex(clause, -1) {
		f, ok := names[clause[at[0]:at[1]]]
		if ok && s.failed[f.Name] {
			return
		}
		if ok && subject == "" {
			subject, begins = f.Name, at[0]
		}
	}
	if subject == "" {
		if len(s.failed) == 0 {
			d.Add(s.at, s.path, "%s", clause)
		}
		return
	}
	// What comes before the name is the prefix of the whole error.
	if prefix := clause[:begins]; strings.HasSuffix(prefix, ": ") {
		clause = clause[begins:]
	}
	clause = goNames.ReplaceAllStringFunc(clause, func(word string) string {
		return cmp.Or(names[word].Name, word)
	})
	if at := s.values[subject]; at != nil {
		d.Add(at, document.Child(s.path, subject), "%s", clause)
		return
	}
	d.Add(s.at, s.path, "%s", clause)
}
