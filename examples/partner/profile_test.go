package main

import (
	"testing"
	"time"
)

func TestProfile_Demo(t *testing.T) {
	if demo.length() != 10*time.Minute || demo.requests() != 900+4950+24_000 {
		t.Errorf("%v, %d requests", demo.length(), demo.requests())
	}
	if text := demo.String(); text != "5/s for 3m0s, then rising from 5/s to 50/s for 3m0s, then 100/s for 4m0s" {
		t.Error(text)
	}
	if n := allowed(demo.length() - 1); n != 300 {
		t.Errorf("%d are allowed in the demo", n)
	}
}

// The requests that are due in each second are as many as the rate says.
func TestProfile_Due(t *testing.T) {
	for _, p := range []profile{demo, demo.scaled(time.Minute), demo.scaled(100 * time.Millisecond), constant(7, 100), {{time.Minute, 50, 5}}} {
		bySecond := map[int]int{}
		last := time.Duration(-1)
		for n := range p.requests() {
			due := p.due(n)
			if due <= last || due >= p.length() {
				t.Fatalf("%v: request %d is due at %v, the one before it at %v", p, n, due, last)
			}
			last = due
			bySecond[int(due/time.Second)]++
		}
		for second := range int(p.length() / time.Second) {
			middle := p.rate(time.Duration(second)*time.Second + time.Second/2)
			if n := float64(bySecond[second]); n < middle-1.5 || n > middle+1.5 {
				t.Errorf("%v: %v requests in second %d, want %v", p, n, second, middle)
			}
		}
	}
}

func TestProfile_Constant(t *testing.T) {
	p := constant(20, 100)
	if p.requests() != 100 || p.length() != 5*time.Second || p.due(99) != 4950*time.Millisecond {
		t.Errorf("%v: %d requests, the last at %v", p, p.requests(), p.due(99))
	}
	if p := constant(0.3, 1); p.requests() != 1 || p.due(0) != 0 {
		t.Errorf("%v: %d requests", p, p.requests())
	}
}
