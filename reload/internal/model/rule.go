package model

import (
	"math"
	"reflect"
	"strconv"
	"strings"
)

// A Rule has the special values, the bounds and the description of a field.
type Rule struct {
	// Words are texts that stand for special numbers.
	Words []Word
	// Default is the default of a field that must not be 0 in a file: for the default, a file leaves the field out. If
	// Default is empty, the field can be 0.
	Default string
	// Least is the smallest value if HasLeast is set; Most is the largest value, and all values are below Below, unless
	// they are 0. For weir's own options they are only for the schema, because the Validate methods check the values.
	// Bounded is set if the decoder checks them.
	Least    float64
	HasLeast bool
	Most     float64
	Below    float64
	Bounded  bool
	// Purpose is set if the field names a function or value that is registered for this purpose.
	Purpose Purpose
	// Refers is set if the field of a section names something of the file: LimitersField or PipelinesField, or with a dot
	// before its name a field of the section.
	Refers string
	// Fixed is set if the field of a section cannot change while the program runs.
	Fixed bool
	// Doc is the description in the schema.
	Doc   string
	wrong []string // the parts of the tag that are wrong
}

// A Word is a text that stands for a number.
type Word struct {
	Text  string
	Value int64
}

// The words that a rule can allow.
var (
	Off     = Word{"off", -1}
	Forever = Word{"forever", math.MaxInt}
)

// ruleOf returns the rule of a field of the struct t. The structs of a program have it in the tags reload and doc.
func ruleOf(t reflect.Type, f reflect.StructField) Rule {
	if r, ok := rules[t][f.Name]; ok {
		return r
	}
	return parseRule(f.Tag)
}

// parseRule returns the rule in the tags of a field.
func parseRule(tag reflect.StructTag) (r Rule) {
	r.Doc = tag.Get("doc")
	for part := range strings.SplitSeq(tag.Get("reload"), ",") {
		name, value, _ := strings.Cut(part, "=")
		var err error
		switch name {
		case "":
		case Off.Text:
			r.Words = append(r.Words, Off)
		case "default":
			r.Default = value
		case "least":
			r.Least, err = strconv.ParseFloat(value, 64)
			r.HasLeast, r.Bounded = true, true
		case "most":
			r.Most, err = strconv.ParseFloat(value, 64)
			r.Bounded = true
		case "fixed":
			r.Fixed = true
		case "limiter":
			r.Refers = LimitersField
		case "pipeline":
			r.Refers = PipelinesField
		case "in":
			r.Refers = "." + value
		case oneOfTag:
		default:
			r.wrong = append(r.wrong, part)
		}
		if err != nil {
			r.wrong = append(r.wrong, part)
		}
	}
	return r
}

const oneOfTag = "oneof"

// OneOf reports whether a mapping that is decoded into the struct has exactly one of its fields, and returns the word
// for what the fields are kinds of.
func OneOf(t reflect.Type) (what string, ok bool) {
	f, has := t.FieldByName("_")
	if !has {
		return "", false
	}
	name, what, _ := strings.Cut(f.Tag.Get("reload"), "=")
	return what, name == oneOfTag
}

// Set sets v to the Value, and reports whether v is a number.
func (w Word) Set(v reflect.Value) bool {
	switch {
	case v.CanInt():
		v.SetInt(w.Value)
	case v.CanFloat():
		v.SetFloat(float64(w.Value))
	default:
		return false
	}
	return true
}
