package ratelimit

import (
	"path"
	"reflect"

	"github.com/weir-go/weir/limiter"
)

// A Description is what [Strategy.Describe] says about the options.
type Description struct {
	Options
	// Limiter is the type of the limiter, such as "limiter.TokenBucket".
	Limiter string `json:"limiter"`
	// Limits are its options in force, if it has a method Options that returns
	// one value, as the limiters of package limiter do.
	Limits any `json:"limits,omitempty"`
}

// Describe says what the strategy is made of, as a [Description], and how its
// limiter is just now: its [limiter.Statistics], the number of its partitions, or
// nil if it says neither. It is for [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) {
	var l any = s.limiter
	if p, ok := l.(interface{ inner() any }); ok {
		l = p.inner()
	}
	d := Description{Options: s.options, Limiter: typeName(l)}
	if m := reflect.ValueOf(l).MethodByName("Options"); m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1 {
		d.Limits = m.Call(nil)[0].Interface()
	}
	switch l := l.(type) {
	case limiter.StatisticsProvider:
		state = l.Statistics()
	case interface{ Len() int }:
		state = Partitions(l.Len())
	}
	return d, state
}

// Partitions is the state of a strategy whose limiter is partitioned: how many
// partitions there are.
type Partitions int

func typeName(l any) string {
	t := reflect.TypeOf(l)
	if t == nil {
		return ""
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := t.Name()
	for i, c := range name {
		if c == '[' { // the types of a generic one would make it unreadable
			name = name[:i]
			break
		}
	}
	return path.Base(t.PkgPath()) + "." + name
}
