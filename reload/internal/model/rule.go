package model

import (
	"math"
	"reflect"
	"strings"
)

// A Rule has the special values, the bounds and the description of a field.
type Rule struct {
	// Words are texts that stand for special numbers.
	Words []Word
	// Default is the default of a field that must not be 0 in a file: for the default, a file leaves the field out. If
	// Default is empty, the field can be 0.
	Default string
	// Least is the smallest value if HasLeast is set, and Most is the largest value unless it is 0. They are only for the
	// schema, because the Validate methods check the values.
	Least    float64
	HasLeast bool
	Most     float64
	// Purpose is set if the field names a function or value that is registered for this purpose.
	Purpose Purpose
	// Doc is the description in the schema.
	Doc string
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

// ruleOf returns the rule of a field of the struct t. The structs of a program have the tag `reload:"off"` where -1
// means off.
func ruleOf(t reflect.Type, f reflect.StructField) Rule {
	if r, ok := rules[t][f.Name]; ok {
		return r
	}
	var r Rule
	for option := range strings.SplitSeq(f.Tag.Get("reload"), ",") {
		if option == Off.Text {
			r.Words = append(r.Words, Off)
		}
	}
	return r
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
