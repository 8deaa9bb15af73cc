package store

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// problems collects what is wrong with some options.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

func (p *problems) notNegative(field string, d time.Duration) {
	if d < 0 {
		p.add("%s is %v, must be at least 0", field, d)
	}
}

func (p *problems) automatic(manual bool) {
	if manual {
		p.add("ManualReplenishment is true, must be false: the store's clock moves time on")
	}
}

func (p *problems) permits(field string, n int) int64 {
	if int64(n) > backend.MaxPermits {
		p.add("%s is %d, must be at most %d", field, n, int64(backend.MaxPermits))
	}
	return int64(n)
}

func (p *problems) micros(field string, d time.Duration) int64 {
	switch us := d.Microseconds(); {
	case d%time.Microsecond != 0:
		p.add("%s is %v, must be whole microseconds", field, d)
	case us > backend.MaxPeriod:
		p.add("%s is %v, must be at most 100 years", field, d)
	}
	return d.Microseconds()
}

// maxName bounds the name of a limiter, which is part of every key.
const maxName = 200

// name checks a limiter's name: stores write it into keys and notices beside other text.
func (p *problems) name(name string) {
	switch {
	case name == "" || len(name) > maxName:
		p.add("the name %q has %d bytes, must have 1 to %d", name, len(name), maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return !inName(r) }):
		p.add("the name %q must be of ASCII letters, digits and any of ._-/", name)
	}
}

func inName(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/", r)
}

func (p problems) err(options string) error {
	if len(p) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: %s", limiter.ErrInvalidOptions, options, strings.Join(p, "; "))
}

// toInt converts n to an int, which has room for fewer permits than a store where it has 32 bits: another
// program may have set more.
func toInt(n int64) int { return int(min(n, math.MaxInt)) }
