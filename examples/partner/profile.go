package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// A profile says how many requests a second are sent, stage after stage.
type profile []stage

// A stage lasts for length. Its rate changes evenly from the first to the last, in requests a second.
type stage struct {
	length      time.Duration
	first, last float64
}

// demo is the load of the demo, for ten minutes: 5 requests a second, then rising to 50, then 100.
var demo = profile{
	{3 * time.Minute, 5, 5},
	{3 * time.Minute, 5, 50},
	{4 * time.Minute, 100, 100},
}

// scaled returns the profile with its times changed so that it lasts for length. The rates stay.
func (p profile) scaled(length time.Duration) profile {
	factor := float64(length) / float64(p.length())
	scaled := make(profile, len(p))
	for i, s := range p {
		scaled[i] = stage{time.Duration(math.Round(float64(s.length) * factor)), s.first, s.last}
	}
	return scaled
}

// constant returns a profile of exactly n requests at one rate.
func constant(rate float64, n int) profile {
	return profile{{time.Duration(math.Round(float64(n) / rate * float64(time.Second))), rate, rate}}
}

func (p profile) length() (sum time.Duration) {
	for _, s := range p {
		sum += s.length
	}
	return sum
}

// requests returns how many requests the profile has.
func (p profile) requests() int {
	sum := 0.0
	for _, s := range p {
		sum += s.requests()
	}
	return int(math.Round(sum))
}

func (s stage) requests() float64 { return (s.first + s.last) / 2 * s.length.Seconds() }

// due returns when the nth request is sent, counted from 0.
func (p profile) due(n int) time.Duration {
	left := float64(n)
	var began time.Duration
	for i, s := range p {
		if left < s.requests() || i == len(p)-1 {
			return began + time.Duration(s.due(left)*float64(time.Second))
		}
		left -= s.requests()
		began += s.length
	}
	return began
}

// due returns after how many seconds of the stage n requests have been sent: the solution of
// first·t + (last-first)/(2·length)·t² = n.
func (s stage) due(n float64) float64 {
	if s.first == s.last {
		return n / s.first
	}
	slope := (s.last - s.first) / s.length.Seconds()
	return (math.Sqrt(s.first*s.first+2*slope*n) - s.first) / slope
}

// rate returns the requests a second at time t.
func (p profile) rate(t time.Duration) float64 {
	for _, s := range p {
		if t < s.length {
			return s.first + (s.last-s.first)*t.Seconds()/s.length.Seconds()
		}
		t -= s.length
	}
	return 0
}

func (p profile) String() string {
	var stages []string
	for _, s := range p {
		if s.first == s.last {
			stages = append(stages, fmt.Sprintf("%g/s for %v", s.first, s.length))
		} else {
			stages = append(stages, fmt.Sprintf("rising from %g/s to %g/s for %v", s.first, s.last, s.length))
		}
	}
	return strings.Join(stages, ", then ")
}
