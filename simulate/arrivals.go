package simulate

import (
	"math/rand/v2"
	"time"
)

type arrivals struct {
	l  *Load
	n  float64
	r  *rand.Rand
	at float64
}

func newArrivals(l *Load, seed uint64) *arrivals {
	return &arrivals{l: l, r: rand.New(rand.NewPCG(seed, 1))}
}
func (a *arrivals) next() (Request, bool, error) {
	mean := 1e9 / a.l.Open.Rate.(ConstantRate).Rate
	if a.l.Open.Poisson {
		mean *= a.r.ExpFloat64()
	}
	a.at += mean
	q := a.draw()
	q.At = time.Duration(a.at)
	return q, q.At < a.l.For, nil
}
func (a *arrivals) draw() Request {
	q := Request{Cost: 1}
	if a.l.Keys != nil {
		q.Key = a.l.Keys.Key(a.r)
	}
	return q
}
