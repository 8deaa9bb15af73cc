package ratelimit

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
)

// A Description is what [Strategy.Describe] returns as the options.
type Description struct {
	Options
	// Limiter is the type of the limiter, such as "limiter.TokenBucket".
	Limiter string `json:"limiter"`
	// Limits are its options in force, if it has a method Limits, as the limiters of package limiter have; otherwise nil.
	Limits any `json:"limits,omitempty"`
}

// Describe returns a [Description], and the state of the limiter: its [limiter.Statistics], the number of its partitions
// as [Partitions], or nil if it has neither. It is for [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) {
	d := Description{Options: s.options, Limiter: typeName(s.given)}
	if l, ok := s.given.(interface{ Limits() rate.Limits }); ok {
		d.Limits = limiter.OptionsOf(l.Limits())
	}
	switch l := s.given.(type) {
	case limiter.StatisticsProvider:
		state = l.Statistics()
	case interface{ Len() int }:
		state = Partitions(l.Len())
	}
	return d, state
}

// Partitions is the state of a strategy whose limiter is partitioned: the number of partitions.
type Partitions int

// typeName returns the name of the type of l with its package and without type arguments, which would make it unreadable.
func typeName(l any) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprintf("%T", l), "*"), "[")
	return name
}
