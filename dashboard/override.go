package dashboard

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"reflect"
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

// limiterInfo returns what the registry says about a limiter.
func (d *Dashboard) limiterInfo(name string) (registry.LimiterInfo, error) {
	for each, info := range d.options.Registry.Limiters() {
		if each == name {
			return info, nil
		}
	}
	return registry.LimiterInfo{}, refuse(http.StatusNotFound, "There is no limiter %q.", printable(shorten(name, 200)))
}

// confirmOverride returns the form for an override, filled in with what the request has, and with the limits in force.
func confirmOverride(d *Dashboard, q *request) (*confirmation, error) {
	info, err := d.limiterInfo(q.Target)
	if err != nil {
		return nil, err
	}
	c := &confirmation{
		Text:   fmt.Sprintf("Give the limiter %s other limits for a while.", info.Name),
		Legend: "Limits until the end of the override",
		Button: "Override the limits",
		Notes: []string{
			"A reload of the configuration keeps the override until its end. After it, the limiter has the limits that the configuration says then.",
			"It is in this process: other instances keep their limits.",
		},
	}
	if info.Shared {
		c.Notes[1] = "It is in a store: its limits change for all instances."
	}
	if info.Partitioned {
		c.Notes = append(c.Notes, "It has these limits for each key.")
	}
	if o := info.Override; o != nil {
		c.Notes = append(c.Notes, fmt.Sprintf("It replaces the override by %s, until %s: %s", o.By, o.Until.UTC().Format(time.RFC3339), o.Reason))
	}
	configured := reflect.ValueOf(limiter.OptionsOf(info.Configured.Limits))
	limits := reflect.ValueOf(limiter.OptionsOf(info.Options.Limits))
	for name, i := range optionsIn(limits.Type()) {
		value, _ := textOfValue(limits.Field(i))
		was, _ := textOfValue(configured.Field(i))
		c.Fields = append(c.Fields, formField{
			Name: "set." + name, Label: labelOf(name), Value: value, Was: "the configuration says " + was, Choices: choicesOf(limits.Field(i)),
		})
	}
	c.Fields = append(c.Fields,
		formField{Name: "for", Label: "for how long", Value: durationtext.Of(defaultOverride), Was: "such as 15m or 2h, at most 168h", Required: true},
		formField{Name: "reason", Label: "reason", Required: true, Wide: true})
	for i, f := range c.Fields {
		if q.form.Has(f.Name) {
			c.Fields[i].Value = q.form.Get(f.Name)
		}
	}
	return c, nil
}

// optionsIn yields the fields of a type of options that a file can have: names and indexes.
func optionsIn(t reflect.Type) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for i := range t.NumField() {
			if name, _, skip := nameOf(t.Field(i)); !skip && !yield(name, i) {
				return
			}
		}
	}
}

func labelOf(name string) string { return strings.ReplaceAll(name, "_", " ") }

// choicesOf returns the values that a field can have, if they are few.
func choicesOf(v reflect.Value) []string {
	if v.Type() == reflect.TypeFor[limiter.QueueOrder]() {
		return []string{limiter.OldestFirst.String(), limiter.NewestFirst.String()}
	}
	return nil
}

func doOverride(ctx context.Context, d *Dashboard, q *request) (*outcome, error) {
	info, err := d.limiterInfo(q.Target)
	if err != nil {
		return nil, err
	}
	o := registry.Override{Limiter: info.Name, By: q.who, Reason: strings.TrimSpace(q.form.Get("reason"))}
	length, err := readOverride(&o, reflect.ValueOf(limiter.OptionsOf(info.Options.Limits)), q.form)
	if err != nil {
		return nil, err
	}
	o.Until = time.Now().Add(length)
	if err := d.options.Registry.Override(ctx, o); err != nil {
		return nil, err
	}
	return &outcome{
		Text: fmt.Sprintf("The limiter %s has other limits for %s: %s.", info.Name, durationtext.Of(length), fieldsOf(o.Options)),
		YAML: yamlOf(o.Options),
	}, nil
}

// readOverride reads the form into o, and returns for how long the override lasts. What the form leaves out is as in limits. The
// error has all problems. A field that there is not is one: the user would believe that the limits are changed when they are not.
func readOverride(o *registry.Override, limits reflect.Value, form url.Values) (time.Duration, error) {
	var problems []error
	known := []string{"do", "target", "for", "reason"}
	v := reflect.New(limits.Type()).Elem()
	v.Set(limits)
	for name, i := range optionsIn(v.Type()) {
		known = append(known, "set."+name)
		if !form.Has("set." + name) {
			continue
		}
		if err := setField(v.Field(i), strings.TrimSpace(form.Get("set."+name))); err != nil {
			problems = append(problems, fmt.Errorf("%s %w", labelOf(name), err))
		}
	}
	o.Options = v.Interface().(limiter.Options)
	for _, name := range slices.Sorted(maps.Keys(form)) {
		if !slices.Contains(known, name) {
			problems = append(problems, fmt.Errorf("there is no field %q, there are %s", printable(shorten(name, 60)), strings.Join(known, ", ")))
		}
	}
	length, err := time.ParseDuration(strings.TrimSpace(form.Get("for")))
	if err != nil || length < time.Second || length > maxOverride {
		problems = append(problems, fmt.Errorf("for how long must be a duration from 1s to %s, such as 15m, got %q", durationtext.Of(maxOverride), shorten(form.Get("for"), 30)))
	}
	if o.Reason == "" {
		problems = append(problems, errors.New("reason must be set"))
	}
	if problems != nil {
		return 0, &formError{errors.Join(problems...)}
	}
	return length, nil
}

// A formError is what is wrong with a form. It is wrong options, as what the registry says of limits.
type formError struct{ error }

func (*formError) Is(target error) bool { return target == weir.ErrInvalidOptions }

// setField sets an option to the value that text has. An empty text is the zero value.
func setField(v reflect.Value, text string) error {
	if text == "" {
		v.SetZero()
		return nil
	}
	var err error
	switch p := v.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return p.UnmarshalText([]byte(text))
	case *time.Duration:
		if *p, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("must be a duration such as 1s or 500ms, got %q", shorten(text, 30))
		}
	case *int:
		if *p, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("must be a whole number, got %q", shorten(text, 30))
		}
	case *string:
		*p = text
	default:
		return errors.New("cannot be changed here")
	}
	return nil
}

func confirmEndOverride(d *Dashboard, q *request) (*confirmation, error) {
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

func doEndOverride(ctx context.Context, d *Dashboard, q *request) (*outcome, error) {
	if err := d.options.Registry.EndOverride(ctx, q.Target, q.who); err != nil {
		return nil, err
	}
	return &outcome{Text: "The limiter " + q.Target + " has its configured limits again."}, nil
}

// yamlOf returns limits as they are written in a configuration file.
func yamlOf(limits limiter.Options) string {
	text := limits.Limits().Kind.String() + ":\n"
	for _, f := range fieldsOf(limits) {
		text += "  " + f.Name + ": " + f.Value + "\n"
	}
	return text
}
