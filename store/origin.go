package store

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// madeSerial numbers the limiters of this process in the order in which they were made.
var madeSerial atomic.Int64

// A birth is when a limiter was made.
type birth struct {
	at     time.Time
	serial int64
}

func newBirth() birth { return birth{at: time.Now(), serial: madeSerial.Add(1)} }

// origin is that of limits that this limiter sets, in place of those of d, which may be nil. now is the store's time.
func (c *core) origin(d *Definition, to Limits, explicit bool, now int64) Origin {
	o := Origin{
		Generation: c.o.Generation, Explicit: explicit,
		Made: now - time.Since(c.born.at).Microseconds(), By: fmt.Sprint(c.born.serial, " ", instance),
	}
	if d == nil {
		return o
	}
	if explicit { // an older program that is reconfigured does not make older limits of the newer one's
		o.Generation = max(o.Generation, d.Generation)
	}
	o.Past = d.Past
	if d.Limits != to {
		o.Past = past(d.Past, d.Limits, to)
	}
	return o
}

// maySet reports whether the first use of this limiter may set its limits in place of d. Otherwise a program that is
// late would bring back limits that have been changed since it was started:
//   - A larger Generation always may, a smaller one never.
//   - What Reconfigure has set stays.
//   - A limiter that was made earlier than the one that has set d may not.
//   - Limits that were in force before and were replaced are those of an older program, whenever it was started.
func (c *core) maySet(d *Definition, wanted Limits, now int64) bool {
	if g := c.o.Generation; g != d.Generation {
		return g > d.Generation
	}
	return !d.Explicit && c.madeAfter(d, now) && !strings.Contains(d.Past, wanted.digest())
}

// madeAfter compares by the order in the process where both were made in this one, else by the store's clock.
func (c *core) madeAfter(d *Definition, now int64) bool {
	if serial, of, ok := strings.Cut(d.By, " "); ok && of == instance {
		n, err := strconv.ParseInt(serial, 10, 64)
		return err != nil || c.born.serial >= n
	}
	return now-time.Since(c.born.at).Microseconds() >= d.Made
}

// mostPast is how many limits before those in force are remembered.
const mostPast = 16

// past is what is remembered once the limits of were replaced by to.
func past(before string, of, to Limits) string {
	all := []string{of.digest()}
	for _, one := range strings.Fields(before) {
		if one != of.digest() && one != to.digest() && len(all) < mostPast {
			all = append(all, one)
		}
	}
	return strings.Join(all, " ")
}

// digest is short: two limits of a limiter with the same one are mistaken for each other once in 2^32.
func (l Limits) digest() string {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, l.Kind, l.Permits, l.Period, l.Refill, l.Segments)
	return fmt.Sprintf("%08x", h.Sum32())
}
