package store

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
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
	by, made := c.born, now-time.Since(c.born.at).Microseconds()
	if explicit { // limiters that were made before this moment are older
		by, made = newBirth(), now
	}
	o := Origin{Generation: c.o.Generation, Explicit: explicit, Made: made, By: fmt.Sprint(by.serial, " ", instance)}
	if d == nil {
		return o
	}
	if explicit { // an older program that is reconfigured does not make older limits of the newer one's
		o.Generation = max(o.Generation, d.Generation)
	}
	o.Past = d.Past
	if d.Limits != to {
		o.Past = d.past()
	}
	return o
}

// maySet returns nil if the first use of this limiter may set its limits in place of d, else why not: a program
// that is late would bring back limits that have been changed since it was started.
func (c *core) maySet(d *Definition, wanted Limits, now int64) error {
	switch g := c.o.Generation; {
	case g > d.Generation:
		return nil
	case g < d.Generation:
		return fmt.Errorf("they are of generation %d, and these of %d", d.Generation, g)
	case strings.Contains(d.Past, wanted.digest()):
		return errors.New("they have replaced these")
	case c.madeAfter(d, now):
		return nil
	case d.Explicit:
		return errors.New("Reconfigure has set them since this limiter was made")
	}
	return errors.New("a limiter that was made later has set them")
}

// madeAfter compares by the order in the process where both were made in this one, else by the store's clock.
func (c *core) madeAfter(d *Definition, now int64) bool {
	if serial, of, ok := strings.Cut(d.By, " "); ok && of == instance {
		n, err := strconv.ParseInt(serial, 10, 64)
		return err != nil || c.born.serial >= n
	}
	return now-time.Since(c.born.at).Microseconds() >= d.Made
}

// mostPast is how many limits that a first use has set are remembered, and how many that Reconfigure has set. Each
// has a number of its own, so that many calls of Reconfigure do not make the limits of the programs forgotten, which
// would then set them again when they are started again.
const mostPast = 8

// byReconfigure follows the digest of limits that no first use has set.
const byReconfigure = "r"

// past is what is remembered once d is replaced.
func (d *Definition) past() string {
	first := d.digest()
	if d.Explicit && !slices.Contains(strings.Fields(d.Past), first) {
		first += byReconfigure
	}
	left := map[bool]int{false: mostPast, true: mostPast}
	var all []string
	for _, one := range append([]string{first}, strings.Fields(d.Past)...) {
		explicit := strings.HasSuffix(one, byReconfigure)
		if left[explicit] > 0 && (len(all) == 0 || !strings.HasPrefix(one, d.digest())) {
			left[explicit]--
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
