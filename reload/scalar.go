package reload

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// scalar decodes numbers, texts and truth values.
func (d *decoder) scalar(n *node, v reflect.Value, path string, r rule) {
	switch {
	case v.Kind() == reflect.String:
		if n.kind != text {
			d.add(n, path, "must be text, found %v%s", n, inQuotes(n))
			return
		}
		v.SetString(n.text)
	case v.Kind() == reflect.Bool:
		if n.kind != boolean {
			d.add(n, path, "must be true or false, found %v", n)
			return
		}
		v.SetBool(strings.EqualFold(n.text, "true"))
	case v.CanInt():
		d.whole(n, path, r, func(digits string) error {
			i, err := strconv.ParseInt(digits, 10, v.Type().Bits())
			v.SetInt(i)
			return err
		})
	case v.CanUint():
		d.whole(n, path, r, func(digits string) error {
			i, err := strconv.ParseUint(digits, 10, v.Type().Bits())
			v.SetUint(i)
			return err
		})
	default:
		d.fraction(n, v, path, r)
	}
}

func inQuotes(n *node) string {
	if n.kind == mapping || n.kind == list || n.kind == null {
		return ""
	}
	if begins := beginning(n.text); begins != n.text {
		return "; write it in quotes"
	}
	return fmt.Sprintf("; write %q, with the quotes", n.text)
}

// wholeNumber is what is read the same by everybody: YAML takes 010 for eight, or
// for ten.
var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

func (d *decoder) whole(n *node, path string, r rule, set func(digits string) error) {
	switch {
	case n.kind != integer:
		d.add(n, path, "must be %s, found %v", r.orWords("a whole number"), n)
	case !wholeNumber.MatchString(n.text):
		d.add(n, path, "must be a whole number in plain decimal digits, found %s", beginning(n.text))
	case set(n.text) != nil:
		d.add(n, path, "the number %s is out of range", beginning(n.text))
	}
}

// orWords adds what a field takes besides words to those.
func (r rule) orWords(wanted string) string {
	var all []string
	for _, w := range r.words {
		all = append(all, strconv.Quote(w.text))
	}
	return alternatives(append(all, wanted))
}

func (d *decoder) fraction(n *node, v reflect.Value, path string, r rule) {
	if n.kind != integer && n.kind != decimal {
		d.add(n, path, "must be %s, found %v", r.orWords("a number"), n)
		return
	}
	f, err := strconv.ParseFloat(n.text, v.Type().Bits())
	if err != nil || n.kind == integer && !wholeNumber.MatchString(n.text) { // also .inf and .nan
		d.add(n, path, "must be a number in decimal digits, found %s", beginning(n.text))
		return
	}
	v.SetFloat(f)
}

func (d *decoder) duration(n *node, v reflect.Value, path string, r rule) {
	wanted := r.orWords(`a duration with its unit, such as "250ms"`)
	switch n.kind {
	case text:
		t, err := time.ParseDuration(n.text)
		if err != nil || strings.Trim(n.text, "+-0") == "" { // a zero needs no unit for ParseDuration
			d.add(n, path, "must be %s, found %v; the units are ns, us, ms, s, m and h", wanted, n)
			return
		}
		v.SetInt(int64(t))
	default:
		d.add(n, path, "must be %s, found %v", wanted, n)
	}
}

// text decodes into what reads text itself.
func (d *decoder) text(n *node, v reflect.Value, path string) {
	texts := enumOf(v.Type())
	if n.kind != text {
		if texts == nil {
			d.add(n, path, "must be text, found %v", n)
		} else {
			d.add(n, path, "must be %s, found %v", oneOf(texts), n)
		}
		return
	}
	err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.text))
	switch {
	case err == nil:
	case texts == nil:
		d.add(n, path, "%v", err)
	default:
		message := fmt.Sprintf("must be %s, found %v", oneOf(texts), n)
		if near := nearest(n.text, texts); near != "" {
			message += fmt.Sprintf("; did you mean %q?", near)
		}
		d.add(n, path, "%s", message)
	}
}

// oneOf lists what can be chosen from.
func oneOf(texts []string) string {
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = strconv.Quote(t)
	}
	return alternatives(quoted)
}

// alternatives joins "a", "b" and "c" to "a, b or c".
func alternatives(all []string) string {
	last := len(all) - 1
	if last < 1 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:last], ", ") + " or " + all[last]
}
