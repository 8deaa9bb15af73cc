package decode

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// eachName is what messages call the limiter of each key. Its kind must be known.
const eachName = "limiter for each key"

// A mapper decodes mappings into structs. It goes on after a problem, to find all of them.
type mapper struct {
	document.Problems
	kinds   *model.Kinds
	section *section // the one that is being decoded, or nil
}

// A section is a section of the file while the file is decoded.
type section struct {
	*model.Section
	kind       model.SectionKind
	options    *structure  // nil: it is no mapping
	references []reference // what it names
	valid      bool        // no problem was found in it so far
}

// A reference is a name in a section of something else.
type reference struct {
	*document.Node
	refers string // see [model.Rule]
}

// checkName checks a name that the file gives to something.
func (d *mapper) checkName(at document.Place, name string) {
	if len(name) > document.MaxName {
		d.Add(at, "the name %s has %d bytes, must have at most %d", document.Quoted(name), len(name), document.MaxName)
	}
	if strings.Contains(name, "/") {
		d.Add(at, "the name %s cannot have a slash, which is between the names of a pipeline and a strategy; write %s",
			document.Quoted(name), document.Quoted(strings.ReplaceAll(name, "/", "-")))
	}
}

func (d *mapper) unknownField(e *document.Node, known ...string) {
	d.Add(e.OfKey(), "unknown field %s, %s", document.Quoted(e.Key.Value), document.Instead(e.Key.Value, known, "there are none here"))
}

// oneKind returns the only entry of a mapping whose key is none of also, if it is one of the kinds or AcceptUnknown
// applies to it. Otherwise it adds a problem and returns nil.
func (d *mapper) oneKind(n *document.Node, what string, kinds []string, also ...string) *document.Node {
	if n.Tag != document.Mapping {
		d.Add(n.Place(), "must be a mapping of a kind of %s to its options, found %v; the kinds are %s", what, n, strings.Join(kinds, ", "))
		return nil
	}
	var found []*document.Node // the kind, and what is too much
	for _, e := range n.Content {
		switch key := e.Key.Value; {
		case slices.Contains(also, key):
		case also != nil && !slices.Contains(kinds, key) && slices.Contains(also, document.Nearest(key, append(also, kinds...))):
			d.unknownField(e, also...)
		default:
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		d.Add(n.Place(), "the kind of %s is missing, it is one of %s", what, strings.Join(kinds, ", "))
		return nil
	}
	kind := found[0]
	key := kind.Key.Value
	if !slices.Contains(kinds, key) && (what == eachName || d.section != nil || !d.acceptsUnknown(key, kinds)) {
		d.Add(kind.OfKey(), "unknown kind of %s %s, %s", what, document.Quoted(key), document.Instead(key, kinds, ""))
		return nil
	}
	if len(found) > 1 {
		d.Add(found[1].OfKey(), "a %s has one kind, found %s after %s; is the indentation right?",
			what, document.Quoted(found[1].Key.Value), document.Quoted(key))
		return nil
	}
	return kind
}

// acceptsUnknown reports whether AcceptUnknown applies to a name: it is not close to a known one.
func (d *mapper) acceptsUnknown(name string, known []string) bool {
	return d.kinds.AcceptUnknown && !slices.Contains(known, name) && document.Nearest(name, known) == ""
}

// A structure is a mapping that was decoded into a struct.
type structure struct {
	node   *document.Node
	typ    reflect.Type    // of the struct
	failed map[string]bool // the names of fields that have a problem
}

// decodeOptions decodes a mapping into the struct that v points to, and validates it. It returns nil if n is no
// mapping. The caller decodes the fields with the names in also.
func (d *mapper) decodeOptions(n *document.Node, v reflect.Value, also ...string) *structure {
	if n.Tag != document.Mapping {
		hint := ""
		if n.Tag == document.Null {
			hint = "; {} is one without any"
		}
		d.Add(n.Place(), "must be a mapping of options, found %v%s", n, hint)
		return nil
	}
	s := &structure{node: n, typ: v.Elem().Type()}
	fields := model.FieldsOf(s.typ)
	if what, is := model.OneOf(s.typ); is {
		if d.oneKind(n, what, namesOf(fields, nil)) == nil {
			return s
		}
	}
	present := make([]bool, len(fields))
	for _, e := range n.Content {
		i := slices.IndexFunc(fields, func(f model.Field) bool { return f.Name == e.Key.Value })
		switch {
		case i < 0 && slices.Contains(also, e.Key.Value):
		case i < 0:
			d.unknownField(e, namesOf(fields, also)...)
		case fields[i].Function:
			d.Add(e.AtKey(), "%s can only be set by the program, not in a file", document.Quoted(e.Key.Value))
		default:
			f := &fields[i]
			present[i] = true
			before := len(d.Problems)
			d.decodeField(f, e, v.Elem().FieldByIndex(f.Index))
			if len(d.Problems) > before {
				s.fail(f.Name)
			}
			if f.Fixed && d.section != nil {
				at := e.AtKey()
				d.section.Places[at.Path] = at
			}
		}
	}
	for i, f := range fields {
		if f.Required && !f.Function && !present[i] {
			d.Add(n.Place(), "%s is missing", f.Name)
			s.fail(f.Name)
		}
	}
	d.addInvalid(validate(v.Interface()), s)
	return s
}

func (s *structure) fail(name string) {
	if s.failed == nil {
		s.failed = make(map[string]bool)
	}
	s.failed[name] = true
}

// namesOf returns the sorted names of the fields that a file can have, and the names in also.
func namesOf(fields []model.Field, also []string) []string {
	names := slices.Clone(also)
	for _, f := range fields {
		if !f.Function {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return names
}

// decodeField decodes the value n of f into v.
func (d *mapper) decodeField(f *model.Field, n *document.Node, v reflect.Value) {
	off := slices.Contains(f.Words, model.Off)
	for _, w := range f.Words {
		written := n.Tag == document.Text && n.Value == w.Text || w == model.Off && n.Tag == document.Integer && n.Value == "-1"
		if written && w.Set(v) {
			return
		}
	}
	before := len(d.Problems)
	d.decodeValue(n, v, f.Rule)
	if f.Purpose != "" && n.Tag == document.Text {
		d.checkFunction(n, f.Purpose)
	}
	switch {
	case len(d.Problems) > before:
	case f.Default != "" && v.IsZero():
		what, none := "0", ""
		if v.Kind() == reflect.String {
			what = "empty"
		}
		if off {
			none = `, or write "off" for none`
		}
		d.Add(n.Place(), "must not be %s; for the default, which is %s, leave %s out%s", what, f.Default, f.Name, none)
	case off && f.Type == model.DurationType && v.Int() == model.Off.Value:
		d.Add(n.Place(), `must be "off" or more than 0, found %v`, n)
	default:
		d.checkBounds(f, n, v)
	}
}

// checkBounds checks that a number is within the bounds of its rule.
func (d *mapper) checkBounds(f *model.Field, n *document.Node, v reflect.Value) {
	v = reflect.Indirect(v)
	if !v.CanInt() && !v.CanUint() && !v.CanFloat() {
		return
	}
	number := v.Convert(reflect.TypeFor[float64]()).Float()
	switch {
	case f.HasLeast && number < f.Least && f.Type == model.DurationType && f.Least == 1:
		d.Add(n.Place(), "must be more than 0, found %v", document.Beginning(n.Value))
	case f.HasLeast && number < f.Least:
		d.Add(n.Place(), "must be at least %v, found %v", f.Least, document.Beginning(n.Value))
	case f.Most != 0 && number > f.Most:
		d.Add(n.Place(), "must be at most %v, found %v", f.Most, document.Beginning(n.Value))
	}
}

// checkFunction checks that n names something that the program has registered for that purpose.
func (d *mapper) checkFunction(n *document.Node, what model.Purpose) {
	known := d.kinds.Functions[what]
	if !slices.Contains(known, n.Value) && !d.kinds.AcceptUnknown {
		d.Add(n.Place(), "there is no %s %s, %s", what, document.Quoted(n.Value), document.Instead(n.Value, known, "there are none"))
	}
}

// decodeValue decodes n into v.
func (d *mapper) decodeValue(n *document.Node, v reflect.Value, r model.Rule) {
	t := v.Type()
	kind := t.Kind()
	if model.IsText(t) {
		kind = reflect.String // decoded from one text
	}
	switch kind {
	case reflect.Interface:
		if made := anyOf(n); made.IsValid() {
			d.decodeValue(n, made, model.Rule{})
			v.Set(made)
		}
	case reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		d.decodeValue(n, v.Elem(), r)
	case reflect.Struct:
		d.decodeOptions(n, v.Addr())
	case reflect.Slice:
		if n.Tag != document.List {
			d.Add(n.Place(), "must be a list, found %v", n)
			return
		}
		v.Set(reflect.MakeSlice(t, len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.decodeValue(item, v.Index(i), r)
		}
	case reflect.Map:
		if n.Tag != document.Mapping {
			d.Add(n.Place(), "must be a mapping, found %v", n)
			return
		}
		v.Set(reflect.MakeMap(t))
		for _, e := range n.Content {
			value := reflect.New(t.Elem()).Elem()
			d.decodeValue(e, value, r)
			v.SetMapIndex(reflect.ValueOf(e.Key.Value).Convert(t.Key()), value)
		}
	default:
		if problem := setScalar(v, n, r); problem != "" {
			d.Add(n.Place(), "%s", problem)
		} else if r.Refers != "" && d.section != nil {
			d.section.references = append(d.section.references, reference{n, r.Refers})
		}
	}
}

// anyOf returns a new value of the type that encoding/json decodes n into, or the zero Value for null.
func anyOf(n *document.Node) reflect.Value {
	var made any
	switch n.Tag {
	case document.Null:
		return reflect.Value{}
	case document.Mapping:
		made = new(map[string]any)
	case document.List:
		made = new([]any)
	case document.Boolean:
		made = new(bool)
	case document.Text:
		made = new(string)
	default:
		made = new(float64)
	}
	return reflect.ValueOf(made).Elem()
}

// setScalar sets v to what n has, or returns what is wrong with n.
func setScalar(v reflect.Value, n *document.Node, r model.Rule) (problem string) {
	switch {
	case model.IsText(v.Type()):
		return setText(v, n)
	case v.Type() == model.DurationType:
		return setDuration(v, n, r)
	case v.Kind() == reflect.String:
		if n.Tag != document.Text {
			return fmt.Sprintf("must be text, found %v%s", n, inQuotes(n))
		}
		v.SetString(n.Value)
	case v.Kind() == reflect.Bool:
		if n.Tag != document.Boolean {
			return fmt.Sprintf("must be true or false, found %v", n)
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case v.CanFloat():
		return setFraction(v, n, r)
	default:
		return setWhole(v, n, r)
	}
	return ""
}

// inQuotes returns the hint that n would be text in quotes, or "" if n is no scalar.
func inQuotes(n *document.Node) string {
	if n.Tag == document.Mapping || n.Tag == document.List || n.Tag == document.Null {
		return ""
	}
	if begins := document.Beginning(n.Value); begins != n.Value {
		return "; write it in quotes"
	}
	return fmt.Sprintf("; write %q, with the quotes", n.Value)
}

// wholeNumber matches numbers that all YAML readers read the same: 010 is eight to some, and ten to others.
var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

func setWhole(v reflect.Value, n *document.Node, r model.Rule) (problem string) {
	text := n.Value
	if n.Tag == document.Decimal {
		text = wholeText(n.Value)
	}
	switch {
	case n.Tag != document.Integer && (n.Tag != document.Decimal || text == ""):
		return fmt.Sprintf("must be %s, found %v", orWords(r, "a whole number"), n)
	case !wholeNumber.MatchString(text):
		return "must be a whole number in plain decimal digits, found " + document.Beginning(n.Value)
	}
	var err error
	if v.CanInt() {
		var i int64
		i, err = strconv.ParseInt(text, 10, v.Type().Bits())
		v.SetInt(i)
	} else {
		var u uint64
		u, err = strconv.ParseUint(text, 10, v.Type().Bits())
		v.SetUint(u)
	}
	if err != nil {
		return "the number " + document.Beginning(n.Value) + " is out of range"
	}
	return ""
}

// wholeText returns a number such as 3.0 or 1e3, which is an integer to JSON Schema, in plain digits. It returns "" for any
// other number, and for one that is too large to be exact as a double.
func wholeText(decimal string) string {
	f, err := strconv.ParseFloat(decimal, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return ""
	}
	return strconv.FormatFloat(f+0, 'f', 0, 64) // -0 becomes 0
}

// orWords returns what a field takes, as alternatives: each word of the rule, and wanted.
func orWords(r model.Rule, wanted string) string {
	var all []string
	for _, w := range r.Words {
		all = append(all, strconv.Quote(w.Text))
	}
	return document.Alternatives(append(all, wanted))
}

func setFraction(v reflect.Value, n *document.Node, r model.Rule) (problem string) {
	if n.Tag != document.Integer && n.Tag != document.Decimal {
		return fmt.Sprintf("must be %s, found %v", orWords(r, "a number"), n)
	}
	f, err := strconv.ParseFloat(n.Value, v.Type().Bits())
	if err != nil || n.Tag == document.Integer && !wholeNumber.MatchString(n.Value) { // also .inf and .nan
		return "must be a number in decimal digits, found " + document.Beginning(n.Value)
	}
	v.SetFloat(f)
	return ""
}

func setDuration(v reflect.Value, n *document.Node, r model.Rule) (problem string) {
	problem = fmt.Sprintf("must be %s, found %v", orWords(r, `a duration with its unit, such as "250ms"`), n)
	if n.Tag != document.Text {
		return problem
	}
	t, err := time.ParseDuration(n.Value)
	if err != nil || strings.Trim(n.Value, "+-0") == "" { // a zero needs no unit for ParseDuration
		return problem + "; the units are ns, us, ms, s, m and h"
	}
	v.SetInt(int64(t))
	return ""
}

// setText sets v, whose type has UnmarshalText.
func setText(v reflect.Value, n *document.Node) (problem string) {
	var err error
	if n.Tag == document.Text {
		if err = v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value)); err == nil {
			return ""
		}
	}
	wanted, texts := "text", model.EnumOf(v.Type())
	switch {
	case texts != nil:
		wanted = document.OneOf(texts)
	case err != nil:
		return err.Error()
	}
	problem = fmt.Sprintf("must be %s, found %v", wanted, n)
	if near := document.Nearest(n.Value, texts); err != nil && near != "" {
		problem += fmt.Sprintf("; did you mean %q?", near)
	}
	return problem
}

// validate calls the Validate method of options, if there is one.
func validate(options any) error {
	if v, ok := options.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// addInvalid adds the problems of an error that validating the struct has returned. Each field of a [weir.OptionsError]
// is a problem where that field is written, and any other error is a problem at the struct. Errors that were joined are
// added one by one.
func (d *mapper) addInvalid(err error, s *structure) {
	if err == nil {
		return
	}
	options, ok := err.(*weir.OptionsError) //nolint:errorlint // it can be unwrapped to its fields
	joined, several := err.(interface{ Unwrap() []error })
	if !ok && several {
		for _, one := range joined.Unwrap() {
			d.addInvalid(one, s)
		}
		return
	}
	if !ok && !errors.As(err, &options) {
		if len(s.failed) == 0 {
			d.Add(s.node.Place(), "%v", err)
		}
		return
	}
	for _, f := range options.Fields {
		d.addInvalidField(f, s)
	}
}

// addInvalidField adds the problem f where the field is written or, if the file leaves it out, at the mapping that it
// belongs to. If decoding that field, or another field that the problem names, has failed, f is not added: Validate has
// checked the zero value instead of what the file has.
func (d *mapper) addInvalidField(f weir.FieldError, s *structure) {
	at := s.locate(f.Path)
	failed := s.failed[at.outermost] || at.outermost == "" && len(s.failed) > 0
	text := f.Text(at.name, func(goName string) string {
		name := goName
		if field := byGoName(at.fields, goName); field != nil {
			name = field.Name
		}
		failed = failed || s.failed[name]
		return name
	})
	if !failed {
		d.Add(at.node.Place(), "%s", text)
	}
}

// A location is where the problem of a field is reported, and what the field is called there.
type location struct {
	node *document.Node // of the field or, if the file leaves it out, of the nearest mapping or list around it
	name string         // of the field, in the file; "": none
	// outermost is the name of the first field of the path, which is a field of the structure that locate was called for.
	outermost string
	fields    []model.Field // of the struct that the field is in
}

// goStep matches a step of the path of a [weir.FieldError]: the name of a field in Go, or the key of a map or list in brackets.
var goStep = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)

// locate follows the path of a [weir.FieldError] through the mapping that s was decoded from. A field that is not found keeps its
// name in Go.
func (s *structure) locate(goPath string) location {
	l := location{node: s.node, fields: model.FieldsOf(s.typ)}
	at, typ := s.node, s.typ // the value at the path so far; nil: the file does not have it, or its type is not known
	for _, step := range goStep.FindAllString(goPath, -1) {
		for typ != nil && typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		in, name := typ, strings.Trim(step, "[]")
		typ, l.fields = nil, nil
		switch {
		case in == nil || model.IsText(in):
		case in.Kind() == reflect.Map || in.Kind() == reflect.Slice:
			typ = in.Elem()
		case in.Kind() == reflect.Struct:
			l.fields = model.FieldsOf(in)
			if f := byGoName(l.fields, name); f != nil && !f.Function {
				name, typ = f.Name, f.Type
			}
		}
		switch {
		case strings.HasPrefix(step, "["):
			l.name += step
		case at != nil:
			l.name = name
		default:
			l.name += "." + name
		}
		l.outermost = cmp.Or(l.outermost, l.name)
		if at = at.Get(name); at != nil {
			l.node = at
		}
	}
	return l
}

func byGoName(fields []model.Field, goName string) *model.Field {
	if i := slices.IndexFunc(fields, func(f model.Field) bool { return f.GoName == goName }); i >= 0 {
		return &fields[i]
	}
	return nil
}

// A collection is all limiters, budgets or pipelines of the file.
type collection[T any] struct {
	what   string
	names  []string // in the order of the file
	byName map[string]*T
}

func collect[T any](what string, all []*T, name func(*T) string) collection[T] {
	c := collection[T]{what: what, byName: make(map[string]*T, len(all))}
	for _, one := range all {
		c.names = append(c.names, name(one))
		c.byName[name(one)] = one
	}
	return c
}

// find returns the element that n names. If there is none, find adds a problem and returns nil. Without a problem, it
// also returns nil if n is nil, because the file leaves the field out, and if n is no text, which decoding n has
// reported.
func find[T any](d *mapper, n *document.Node, in collection[T]) *T {
	if n == nil || n.Tag != document.Text {
		return nil
	}
	found := in.byName[n.Value]
	if found == nil {
		d.Add(n.Place(), "there is no %s %s, %s", in.what, document.Quoted(n.Value), document.Instead(n.Value, in.names, "the file has no "+in.what+"s"))
	}
	return found
}
