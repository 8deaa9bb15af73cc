package weir

import (
	"errors"
	"fmt"
	"strings"
)

// ErrInvalidOptions is what [errors.Is] finds in every [OptionsError].
var ErrInvalidOptions = errors.New("weir: invalid options")

// An OptionsError lists everything that is wrong with some options. Every constructor and every Validate method of
// weir that refuses options returns one.
//
// A program that decodes a file into options finds the place in the file by [FieldError.Path].
type OptionsError struct {
	// Package is the name of the package that the options belong to, such as "limiter".
	Package string
	// Name is the name of what the options are for, such as that of a pipeline. It is empty if there is none.
	Name string
	// Fields has one entry for each problem; at least one.
	Fields []FieldError
}

// Error returns the problems of all fields in one line:
//
//	limiter: TokenLimit must be at least 1, got 0; ReplenishmentPeriod must be more than 0, got 0s
func (e *OptionsError) Error() string {
	var b strings.Builder
	if prefix := strings.TrimSpace(e.Package + " " + e.Name); prefix != "" {
		b.WriteString(prefix + ": ")
	}
	for i, f := range e.Fields {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(f.Error())
	}
	return b.String()
}

// Is reports whether target is [ErrInvalidOptions].
func (e *OptionsError) Is(target error) bool { return target == ErrInvalidOptions }

// Unwrap returns the [FieldError.Err] of the fields that have one.
func (e *OptionsError) Unwrap() []error {
	var errs []error
	for _, f := range e.Fields {
		if f.Err != nil {
			errs = append(errs, f.Err)
		}
	}
	return errs
}

// A FieldError is one problem of options.
type FieldError struct {
	// Path leads from the options to the field by the names that it has in Go, such as "TokenLimit",
	// "Policies[login].Timeout" or "Strategies[2].Delay". It is empty where the problem is not one field's.
	Path string
	// Problem says what would be right, such as "must be at least 1". The name of another field of the same options
	// stands in braces, such as "must be divisible by {SegmentsPerWindow}", so that a program can replace it by the
	// name that the field has in a file. If Err is not nil, Problem has the text of Err, and braces in it have no meaning.
	Problem string
	// Value is the value that the field has. If nil, the text of the error shows none.
	Value any
	// Err is the error that the field's own check returned, if there is one.
	Err error
}

// Error returns the path, the problem without its braces, and the value.
func (f FieldError) Error() string { return f.Text(f.Path, func(field string) string { return field }) }

// Text is Error with path in place of the Path, and with each field that the Problem names in braces replaced by what
// rename returns for it.
func (f FieldError) Text(path string, rename func(field string) string) string {
	var b strings.Builder
	if path != "" {
		b.WriteString(path + " ")
	}
	rest := f.Problem
	for {
		before, after, found := strings.Cut(rest, "{")
		name, tail, closed := strings.Cut(after, "}")
		if f.Err != nil || !found || !closed {
			b.WriteString(rest)
			break
		}
		b.WriteString(before + rename(name))
		rest = tail
	}
	switch v := f.Value.(type) {
	case nil:
	case string:
		fmt.Fprintf(&b, ", got %q", v)
	default:
		fmt.Fprintf(&b, ", got %v", v)
	}
	return b.String()
}

// Must returns v. It panics if err is not nil. It is for package variables, tests and examples, where an error is a
// mistake in the program:
//
//	var logins = weir.Must(limiter.NewTokenBucket(limiter.PerMinute(5, 5)))
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
