package weirrls

import (
	"context"
	"errors"
)

// count counts the hits of a window or an override. A window is over if more than its limit were counted, also if the
// request only looks. An override is exact instead, unless the service counts rejected hits: a request that looks needs
// something to be left, and hits that are refused are taken back at once.
func (d *decision) count(c *check) error {
	n := c.counterHits()
	sum, err := d.add(c, n)
	if err != nil {
		return err
	}
	c.sum, c.counted = sum, n != 0
	if c.negative {
		return nil
	}
	isExact := c.kind == override && !d.service.options.OverridesCountRejected
	c.refused = sum > int64(c.allowed) || isExact && n == 0 && sum == int64(c.allowed)
	if c.refused && c.counted && isExact {
		c.refunded = true
		d.uncount(c)
	}
	return nil
}

// counterHits returns what the request adds to its counter.
func (c *check) counterHits() int64 {
	n := int64(min(c.hits, maxHits)) //nolint:gosec // it is small
	if c.negative {
		return -n
	}
	return n
}

// uncount takes the hits of c back. It does so even if the caller has gone.
func (d *decision) uncount(c *check) {
	n := c.counterHits()
	sum, err := d.add(c, -n)
	if err != nil {
		sum = max(c.sum-n, 0) // or it stays counted: the answer is about what is left for the next request
	}
	c.sum = sum
}

// errLate is the error of a counter that has not answered in time.
var errLate = errors.New("weirrls: the store has not answered in time")

// add adds n to the counter of c. The hits count also if the answer comes too late for the request.
func (d *decision) add(c *check, n int64) (sum int64, err error) {
	counters := d.service.options.Counters
	if !counters.shared {
		return counters.hits.count(d.ctx, c.span, c.key, n)
	}
	ctx, span, key := context.WithoutCancel(d.ctx), c.span, c.key
	sum, ok, err := inTime(d.asking, func() (int64, error) { return counters.hits.count(ctx, span, key, n) })
	if !ok && err == nil {
		err = errLate
	}
	return sum, err
}
