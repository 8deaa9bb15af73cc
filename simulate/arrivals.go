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
	a.at += a.r.ExpFloat64() * 1e6
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
