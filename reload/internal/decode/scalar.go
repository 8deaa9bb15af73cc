package decode

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

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
