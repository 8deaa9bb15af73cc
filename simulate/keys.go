package simulate

import (
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/weir-go/weir/internal/validate"
)

// UniformKeys are [Keys] "key-1", "key-2" and so on, each as frequent as the others.
type UniformKeys struct {
	// Count is how many keys there are. Required.
	Count int `json:"count" yaml:"count"`
}

// Key implements [Keys].
func (u UniformKeys) Key(r *rand.Rand) string { return keyName(1 + r.IntN(u.Count)) }

func (u UniformKeys) validate() error {
	var p validate.Problems
	keyCount(&p, "Count", u.Count)
	return p.Err("simulate")
}

// AbuserKeys are [Keys] of which one, "abuser", has a share of the requests to itself. The others are "key-1", "key-2"
// and so on, each as frequent as the others.
type AbuserKeys struct {
	// Share is the abuser's share of all requests, from 0 to 1. Required.
	Share float64 `json:"share" yaml:"share"`
	// Others is how many other keys there are. Required.
	Others int `json:"others" yaml:"others"`
}

// Key implements [Keys].
func (a AbuserKeys) Key(r *rand.Rand) string {
	// Both numbers are drawn for each request, so that another Share leaves the keys of the others as they are.
	abuser, other := r.Float64() < a.Share, r.IntN(a.Others)
	if abuser {
		return "abuser"
	}
	return keyName(1 + other)
}

func (a AbuserKeys) validate() error {
	var p validate.Problems
	share(&p, "Share", a.Share)
	keyCount(&p, "Others", a.Others)
	return p.Err("simulate")
}

// ZipfKeys are [Keys] "key-1", "key-2" and so on of which the n-th is as frequent as 1 / n^Exponent: a few have most of
// the requests, as users of many services do.
type ZipfKeys struct {
	// Count is how many keys there are. Required.
	Count int `json:"count" yaml:"count"`
	// Exponent is how uneven the keys are, more than 0. With 1, which is near to what is often measured, the first of
	// 1,000 keys has 13 % of the requests. Required.
	Exponent float64 `json:"exponent" yaml:"exponent"`
}

// Key implements [Keys].
func (z ZipfKeys) Key(r *rand.Rand) string { return z.prepared().Key(r) }

func (z ZipfKeys) validate() error {
	var p validate.Problems
	keyCount(&p, "Count", z.Count)
	if !(z.Exponent > 0 && z.Exponent <= maxExponent) {
		p.Add("Exponent", z.Exponent, "must be more than 0 and at most %d", maxExponent)
	}
	return p.Err("simulate")
}

// With maxExponent, all but one of a million million requests have the first key.
const maxExponent = 40

// prepared returns Keys for many calls.
func (z ZipfKeys) prepared() Keys {
	d := &zipf{exponent: z.Exponent, count: float64(z.Count)}
	d.first = d.integral(1.5) - 1
	d.last = d.integral(d.count + 0.5)
	d.near = 2 - d.inverse(d.integral(2.5)-d.density(2))
	return d
}

// A zipf draws from a Zipf distribution by rejection-inversion: it inverts the integral of the density, and rejects what
// the integral has more than the sum. It needs no table, is exact, and takes about 1.1 tries. See Hörmann and Derflinger,
// "Rejection-inversion to generate variates from monotone discrete distributions" (1996).
type zipf struct {
	exponent, count   float64
	first, last, near float64
}

func (z *zipf) Key(r *rand.Rand) string { return keyName(z.draw(r)) }

// draw returns a number from 1 to the count.
func (z *zipf) draw(r *rand.Rand) int {
	for {
		u := z.last + r.Float64()*(z.first-z.last)
		x := z.inverse(u)
		k := min(max(math.Floor(x+0.5), 1), z.count)
		if k-x <= z.near || u >= z.integral(k+0.5)-z.density(k) {
			return int(k)
		}
	}
}

// density is the density without its factor: 1 / x^exponent.
func (z *zipf) density(x float64) float64 { return math.Exp(-z.exponent * math.Log(x)) }

// integral is the integral of the density from 1 to x: (x^(1-exponent) - 1) / (1-exponent), or log x if the exponent is 1.
// Near 1 it keeps its digits.
func (z *zipf) integral(x float64) float64 {
	log := math.Log(x)
	y := (1 - z.exponent) * log
	if math.Abs(y) < 1e-8 {
		return log * (1 + y/2)
	}
	return log * math.Expm1(y) / y
}

// inverse is the inverse of integral.
func (z *zipf) inverse(u float64) float64 {
	y := max(u*(1-z.exponent), -1) // below -1 by rounding only
	if math.Abs(y) < 1e-8 {
		return math.Exp(u * (1 - y/2))
	}
	return math.Exp(u * math.Log1p(y) / y)
}

func keyName(n int) string { return "key-" + strconv.Itoa(n) }

// keyCount adds a problem if there are too few or too many keys.
func keyCount(p *validate.Problems, path string, count int) {
	if count < 1 || count > maxKeys {
		p.Add(path, count, "must be at least 1 and at most %d", maxKeys)
	}
}

const maxKeys = 1_000_000_000
