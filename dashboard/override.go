package dashboard

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
)

const (
	// defaultOverride is how long an override lasts if the user does not change it, and maxOverride the most.
	defaultOverride = 15 * time.Minute
	maxOverride     = 7 * 24 * time.Hour
)

// A formError is what is wrong with a form, which the user gets again.
type formError struct {
	error
	page *confirmation
}

func (e *formError) Unwrap() error { return e.error }

// confirmOverride returns the form for an override, filled in with the limits in force.
func (d *Dashboard) confirmOverride(q *request) (*confirmation, error) {
	info, err := d.limiterInfo(q.Target)
	if err != nil {
		return nil, err
	}
	return overrideForm(info, nil), nil
}

// overrideForm returns the form. Values of values, if there are any, come before those of the limits.
func overrideForm(info registry.LimiterInfo, values url.Values) *confirmation {
	state := describeLimiter(info)
	c := &confirmation{
		Text:   fmt.Sprintf("Give the limiter %s other limits for a while.", info.Name),
		Legend: "Limits until the end of the override",
		Button: "Override the limits",
		Notes: []string{
			"A reload of the configuration keeps the override until its end. After it, the limiter has the limits that the configuration says then.",
		},
	}
	if state.partitioned {
		c.Notes = append(c.Notes, "It has these limits for each key.")
	}
	if state.Place == "store" {
		c.Notes = append(c.Notes, "It is in a store: its limits change for all instances.")
	} else {
		c.Notes = append(c.Notes, "It is in this process: other instances keep their limits.")
	}
	if o := info.Override; o != nil {
		c.Notes = append(c.Notes, fmt.Sprintf("It replaces the override by %s, until %s: %s", o.By, o.Until.UTC().Format(time.RFC3339), o.Reason))
	}
	configured := reflect.ValueOf(limiter.OptionsOf(info.Configured.Limits))
	v := reflect.ValueOf(limiter.OptionsOf(info.Options.Limits))
	for i := range v.NumField() {
		name, _, skip := nameOf(v.Type().Field(i))
		if skip {
			continue
		}
		text, _ := textOfValue(v.Field(i))
		f := formField{Name: "set." + name, Label: strings.ReplaceAll(name, "_", " "), Value: text, Choices: choicesOf(v.Field(i))}
		if configured.Type() == v.Type() {
			was, _ := textOfValue(configured.Field(i))
			f.Was = "the configuration says " + was
		}
		c.Fields = append(c.Fields, f)
	}
	c.Fields = append(c.Fields,
		formField{Name: "for", Label: "for how long", Value: durationtext.Of(defaultOverride), Was: "such as 15m or 2h, at most 168h", Required: true},
		formField{Name: "reason", Label: "reason", Required: true, Wide: true})
	for i, f := range c.Fields {
		if values.Has(f.Name) {
			c.Fields[i].Value = values.Get(f.Name)
		}
	}
	return c
}

// choicesOf returns the values that a field can have, if they are few.
func choicesOf(v reflect.Value) []string {
	switch v.Interface().(type) {
	case limiter.QueueOrder:
		return []string{limiter.OldestFirst.String(), limiter.NewestFirst.String()}
	case bool:
		return []string{"false", "true"}
	default:
		return nil
	}
}

// doOverride overrides the limits of a limiter.
func (d *Dashboard) doOverride(ctx context.Context, q *request) (result, error) {
	info, err := d.limiterInfo(q.Target)
	if err != nil {
		return result{}, err
	}
	limits := limiter.OptionsOf(info.Options.Limits)
	o := registry.Override{Limiter: info.Name, By: q.who, Reason: strings.TrimSpace(q.form.Get("reason"))}
	length, err := readOverride(&o, limits, q.form)
	if err == nil {
		o.Until = time.Now().Add(length)
		if err = d.options.Registry.Override(ctx, o); err != nil && !errors.Is(err, weir.ErrInvalidOptions) {
			return result{}, err
		}
		err = byLabel(err, limits)
	}
	if err != nil {
		return result{}, &formError{err, overrideForm(info, q.form)}
	}
	return result{
		text: fmt.Sprintf("The limiter %s has other limits for %s: %s.", info.Name, durationtext.Of(length), fieldsOf(o.Options)),
		yaml: yamlOf(info, o.Options),
	}, nil
}

// readOverride reads the form into o, and returns for how long the override lasts. The error has all problems.
func readOverride(o *registry.Override, limits any, form url.Values) (time.Duration, error) {
	problems := unknownFields(limits, form)
	v := reflect.New(reflect.TypeOf(limits)).Elem()
	v.Set(reflect.ValueOf(limits))
	for i := range v.NumField() {
		name, _, skip := nameOf(v.Type().Field(i))
		if skip || !form.Has("set."+name) {
			continue
		}
		if err := setField(v.Field(i), strings.TrimSpace(form.Get("set."+name))); err != nil {
			problems = append(problems, fmt.Errorf("%s %w", strings.ReplaceAll(name, "_", " "), err))
		}
	}
	o.Options = v.Interface().(limiter.Options)
	length, err := time.ParseDuration(strings.TrimSpace(form.Get("for")))
	if err != nil || length < time.Second || length > maxOverride {
		problems = append(problems, fmt.Errorf("for how long must be a duration from 1s to %s, such as 15m, got %q", durationtext.Of(maxOverride), shorten(form.Get("for"), 30)))
	}
	if o.Reason == "" {
		problems = append(problems, errors.New("reason must be set"))
	}
	if len(problems) > 0 {
		return 0, errors.Join(problems...)
	}
	return length, nil
}

// byLabel returns err with the labels that the fields of limits have in the form.
func byLabel(err error, limits any) error {
	wrong, ok := errors.AsType[*weir.OptionsError](err)
	if !ok {
		return err
	}
	label := func(path string) string {
		f, ok := reflect.TypeOf(limits).FieldByName(strings.TrimPrefix(path, "Options."))
		if !ok {
			return path
		}
		name, _, _ := nameOf(f)
		return strings.ReplaceAll(name, "_", " ")
	}
	var problems []error
	for _, f := range wrong.Fields {
		problems = append(problems, errors.New(f.Text(label(f.Path), label)))
	}
	return errors.Join(problems...)
}

// unknownFields returns an error for each field of the form that an override does not have. If they were ignored, a typing
// error would answer that the limits are changed when they are not.
func unknownFields(limits any, form url.Values) (problems []error) {
	known := []string{"do", "target", "for", "reason"}
	t := reflect.TypeOf(limits)
	for f := range t.Fields() {
		if name, _, skip := nameOf(f); !skip {
			known = append(known, "set."+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(form)) {
		if !slices.Contains(known, name) {
			problems = append(problems, fmt.Errorf("there is no field %q, there are %s", printable(shorten(name, 60)), strings.Join(known, ", ")))
		}
	}
	return problems
}

// setField sets an option to the value that text has. An empty text is the zero value.
func setField(v reflect.Value, text string) error {
	if text == "" {
		v.SetZero()
		return nil
	}
	if _, ok := reflect.TypeAssert[time.Duration](v); ok {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("must be a duration such as 1s or 500ms, got %q", shorten(text, 30))
		}
		v.SetInt(int64(d))
		return nil
	}
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("must be a whole number, got %q", shorten(text, 30))
		}
		v.SetInt(int64(n))
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("must be true or false, got %q", shorten(text, 30))
		}
		v.SetBool(b)
	default:
		return errors.New("cannot be changed here")
	}
	return nil
}

// confirmEndOverride asks before an override is ended.
func (d *Dashboard) confirmEndOverride(q *request) (*confirmation, error) {
	info, err := d.limiterInfo(q.Target)
	if err != nil {
		return nil, err
	}
	if info.Override == nil {
		return nil, refuse(http.StatusConflict, "The limits of %q are not overridden.", printable(shorten(q.Target, 200)))
	}
	return &confirmation{
		Text: fmt.Sprintf("Give the limiter %s the limits back that the configuration says: %s.", info.Name, optionFields(info.Configured)),
		Notes: []string{fmt.Sprintf("The override by %s would end at %s. Its reason: %s",
			info.Override.By, info.Override.Until.UTC().Format(time.RFC3339), info.Override.Reason)},
		Button: "End the override",
	}, nil
}

// plainYAML matches names that need no quotation marks in YAML.
var plainYAML = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// yamlOf returns the part of a configuration file that makes limits permanent.
func yamlOf(info registry.LimiterInfo, limits limiter.Options) string {
	var b strings.Builder
	indent := "    "
	if pipeline, strategy, ok := strategyOf(info); ok {
		fmt.Fprintf(&b, "# in the strategy %q of the pipeline %q\nrate_limiter:\n", strategy, pipeline)
		indent = "  "
	} else {
		name := info.Name
		if !plainYAML.MatchString(name) {
			name = strconv.QuoteToASCII(name)
		}
		fmt.Fprintf(&b, "limiters:\n  %s:\n", name)
	}
	switch state := describeLimiter(info); {
	case state.partitioned:
		fmt.Fprintf(&b, "%[1]spartitioned:\n%[1]s  # the key and the other options of the limiter stay as they are\n%[1]s  each:\n", indent)
		indent += "    "
	case state.Place == "store":
		fmt.Fprintf(&b, "%s# the store stays as it is\n", indent)
	}
	fmt.Fprintf(&b, "%s%s:\n", indent, limits.Limits().Kind.String())
	for _, f := range fieldsOf(limits) {
		fmt.Fprintf(&b, "%s  %s: %s\n", indent, f.Name, f.Value)
	}
	return b.String()
}

// strategyOf returns the strategy of a file in which a limiter is written. ok is false if it is a shared one. Package reload
// calls the limiters in strategies pipeline/strategy.
func strategyOf(info registry.LimiterInfo) (pipeline, strategy string, ok bool) {
	for _, name := range info.Pipelines {
		if strategy, ok := strings.CutPrefix(info.Name, name+"/"); ok {
			return name, strategy, true
		}
	}
	return "", "", false
}
