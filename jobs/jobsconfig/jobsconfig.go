// Package jobsconfig reads limiters of jobs and throttles for kinds of jobs from a file.
package jobsconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/jobs"
)

// Parse reads a [jobs.Config] in YAML or JSON. For unknown fields and invalid values it returns an error that names the line
// or the field. Durations are written as 1h30m.
//
//	limiters:
//	  - semaphore: smtp
//	    max_count: 10
//	  - dynamic_window: newsletter
//	    interval: 1h
//	    capacity: 10000
//	    min_limit: 1000
//	throttles:
//	  - kinds: [newsletter_*]
//	    limits:
//	      - semaphore: smtp
//	      - dynamic_window: newsletter
//	        key: "{tenant}"
func Parse(text []byte) (jobs.Config, error) {
	var c jobs.Config
	var document, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	err := d.Decode(&document)
	if errors.Is(err, io.EOF) {
		return c, nil
	}
	if err == nil {
		if more := d.Decode(&more); !errors.Is(more, io.EOF) {
			return c, invalid("there is more than one document")
		}
		if err = prepareNode(&document); err == nil {
			err = document.Load(&c, yaml.WithV3Defaults(), yaml.WithKnownFields())
		}
	}
	if err != nil {
		inFile := strings.NewReplacer("jobs: Mode", "mode", "jobs: ", "") // of UnmarshalText methods
		return jobs.Config{}, invalid(inFile.Replace(err.Error()))
	}
	if err := c.Validate(); err != nil {
		return jobs.Config{}, withFileNames(err)
	}
	return c, nil
}

var (
	fieldName    = regexp.MustCompile(`\{[A-Z]\w*\}`)
	innerCapital = regexp.MustCompile(`\B[A-Z]`)
)

// withFileNames returns err with the names that fields have in a file: max_count for MaxCount.
func withFileNames(err error) error {
	o, ok := errors.AsType[*weir.OptionsError](err)
	if !ok {
		return err
	}
	inFile := func(name string) string {
		return strings.ToLower(innerCapital.ReplaceAllString(name, "_$0"))
	}
	for i := range o.Fields {
		f := &o.Fields[i]
		f.Path = inFile(f.Path)
		f.Problem = fieldName.ReplaceAllStringFunc(f.Problem, func(name string) string { return inFile(name[1 : len(name)-1]) })
	}
	return err
}

// prepareNode returns an error for a list element without a value, which the decoder would leave out, so that a limit that
// is only half written would limit nothing, for limits without a value, and for a duration without its unit. prepareNode also writes a deadline of -1 as
// a duration; see [jobs.Limit].
func prepareNode(n *yaml.Node) error {
	for i, inner := range n.Content {
		if n.Kind == yaml.SequenceNode && inner.ShortTag() == "!!null" {
			return fmt.Errorf("line %d: an element of a list has no value", inner.Line)
		}
		if n.Kind == yaml.MappingNode && i%2 == 1 {
			switch name := n.Content[i-1].Value; {
			case name == "limits" && inner.ShortTag() == "!!null":
				return fmt.Errorf("line %d: limits has no value", inner.Line)
			case name == "deadline" && inner.Value == "-1":
				inner.SetString("-1ns")
			case (name == "deadline" || name == "interval" || name == "min_delay") && (inner.ShortTag() == "!!int" || inner.ShortTag() == "!!float"):
				return fmt.Errorf("line %d: %s must be a duration with its unit, such as 30s, got %.120s", inner.Line, name, inner.Value)
			}
		}
		if err := prepareNode(inner); err != nil {
			return err
		}
	}
	return nil
}

// invalid returns a [weir.OptionsError]. Braces in the text, which may be the user's, are not names of fields.
func invalid(text string) error {
	err := errors.New(text)
	return &weir.OptionsError{Package: "jobs", Fields: []weir.FieldError{{Problem: text, Err: err}}}
}
