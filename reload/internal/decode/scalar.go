package decode

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// decodeScalar decodes numbers, texts and booleans.
func (d *decoder) decodeScalar(n *document.Node, v reflect.Value, r model.Rule) {
	switch {
	case v.Kind() == reflect.String:
		if n.Kind != document.Text {
			d.Add(n, "must be text, found %v%s", n, inQuotes(n))
			return
		}
		v.SetString(n.Text)
	case v.Kind() == reflect.Bool:
		if n.Kind != document.Boolean {
			d.Add(n, "must be true or false, found %v", n)
			return
		}
		v.SetBool(strings.EqualFold(n.Text, "true"))
	case v.CanInt():
		d.decodeWhole(n, r, func(digits string) error {
			i, err := strconv.ParseInt(digits, 10, v.Type().Bits())
			v.SetInt(i)
			return err
		})
	case v.CanUint():
		d.decodeWhole(n, r, func(digits string) error {
			i, err := strconv.ParseUint(digits, 10, v.Type().Bits())
			v.SetUint(i)
			return err
		})
	default:
		d.decodeFraction(n, v, r)
	}
}

func inQuotes(n *document.Node) string {
	if n.Kind == document.Mapping || n.Kind == document.List || n.Kind == document.Null {
		return ""
	}
	if begins := document.Beginning(n.Text); begins != n.Text {
		return "; write it in quotes"
	}
	return fmt.Sprintf("; write %q, with the quotes", n.Text)
}

// wholeNumber matches numbers that all YAML readers read the same: 010 is eight to some, and ten to others.
var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

func (d *decoder) decodeWhole(n *document.Node, r model.Rule, set func(digits string) error) {
	switch {
	case n.Kind != document.Integer:
		d.Add(n, "must be %s, found %v", orWords(r, "a whole number"), n)
	case !wholeNumber.MatchString(n.Text):
		d.Add(n, "must be a whole number in plain decimal digits, found %s", document.Beginning(n.Text))
	case set(n.Text) != nil:
		d.Add(n, "the number %s is out of range", document.Beginning(n.Text))
	}
}

// orWords returns what a field takes: the words of the rule, or else wanted.
func orWords(r model.Rule, wanted string) string {
	var all []string
	for _, w := range r.Words {
		all = append(all, strconv.Quote(w.Text))
	}
	return document.Alternatives(append(all, wanted))
}

func (d *decoder) decodeFraction(n *document.Node, v reflect.Value, r model.Rule) {
	if n.Kind != document.Integer && n.Kind != document.Decimal {
		d.Add(n, "must be %s, found %v", orWords(r, "a number"), n)
		return
	}
	f, err := strconv.ParseFloat(n.Text, v.Type().Bits())
	if err != nil || n.Kind == document.Integer && !wholeNumber.MatchString(n.Text) { // also .inf and .nan
		d.Add(n, "must be a number in decimal digits, found %s", document.Beginning(n.Text))
		return
	}
	v.SetFloat(f)
}

func (d *decoder) decodeDuration(n *document.Node, v reflect.Value, r model.Rule) {
	wanted := orWords(r, `a duration with its unit, such as "250ms"`)
	switch n.Kind {
	case document.Text:
		t, err := time.ParseDuration(n.Text)
		if err != nil || strings.Trim(n.Text, "+-0") == "" { // a zero needs no unit for ParseDuration
			d.Add(n, "must be %s, found %v; the units are ns, us, ms, s, m and h", wanted, n)
			return
		}
		v.SetInt(int64(t))
	default:
		d.Add(n, "must be %s, found %v", wanted, n)
	}
}

// decodeText decodes into a type with UnmarshalText.
func (d *decoder) decodeText(n *document.Node, v reflect.Value) {
	texts := model.EnumOf(v.Type())
	if n.Kind != document.Text {
		if texts == nil {
			d.Add(n, "must be text, found %v", n)
		} else {
			d.Add(n, "must be %s, found %v", document.OneOf(texts), n)
		}
		return
	}
	err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Text))
	switch {
	case err == nil:
	case texts == nil:
		d.Add(n, "%v", err)
	default:
		message := fmt.Sprintf("must be %s, found %v", document.OneOf(texts), n)
		if near := document.Nearest(n.Text, texts); near != "" {
			message += fmt.Sprintf("; did you mean %q?", near)
		}
		d.Add(n, "%s", message)
	}
}
