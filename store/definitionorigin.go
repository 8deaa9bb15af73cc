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

	"github.com/weir-go/weir/store/backend"
)

// stampSerial numbers the limiters of this process in the order in which they were made.
var stampSerial atomic.Int64

// A stamp is when a limiter was made, or limits were asked for by Reconfigure.
type stamp struct {
	at     time.Time
	serial int64
}

func newStamp() stamp { return stamp{at: time.Now(), serial: stampSerial.Add(1)} }

// String is unique among all processes.
func (b stamp) String() string { return fmt.Sprint(b.serial, " ", instance) }

// time is when it was by the store's clock, which shows now.
func (b stamp) time(now int64) int64 { return now - time.Since(b.at).Microseconds() }

// after compares with the origin of d by the order in the process where both are of this one, else by the store's clock.
func (b stamp) after(d *backend.Definition, now int64) bool {
	if serial, of, ok := strings.Cut(d.By, " "); ok && of == instance {
		n, err := strconv.ParseInt(serial, 10, 64)
		return err != nil || b.serial >= n
	}
	return b.time(now) >= d.Made
}

// origin is that of limits that this limiter sets, in place of those of d, which may be nil. now is the store's time.
func (c *core) origin(d *backend.Definition, to backend.Limits, why defineReason, by stamp, now int64) backend.Origin {
	o := backend.Origin{Generation: c.o.Generation, Explicit: why != forFirstUse, Made: by.time(now), By: by.String()}
	if d != nil {
		o.Past = d.Past
		if o.Explicit { // an older program that is reconfigured does not make older limits of the newer one's
			o.Generation = max(o.Generation, d.Generation)
		}
	}
	// Reconfigure replaces the constructor's limits, also where the limiter has not set them yet.
	if o.Explicit && c.madeWith != to && !strings.Contains(o.Past, digest(c.madeWith)) {
		o.Past = pastWith(o.Past, digest(c.madeWith))
	}
	if d != nil && d.Limits != to {
		o.Past = pastAfter(d, o.Past)
	}
	return o
}

// firstUseRefusal returns nil if the first use of this limiter may set its limits in place of d, else why not: a program
// that is late would bring back limits that have been changed since it was started.
func (c *core) firstUseRefusal(d *backend.Definition, wanted backend.Limits, now int64) error {
	switch g := c.o.Generation; {
	case g > d.Generation:
		return nil
	case g < d.Generation:
		return fmt.Errorf("they are of generation %d, and these of %d", d.Generation, g)
	case strings.Contains(d.Past, digest(wanted)):
		return errors.New("they have replaced these")
	case c.madeAt.after(d, now):
		return nil
	case d.Explicit:
		return errors.New("Reconfigure has set them since this limiter was made")
	}
	return errors.New("a limiter that was made later has set them")
}

// follows reports whether d, which is newer, was set in place of old, or may be. If a first use has set d and did not
// know of old, the store had forgotten old. Then d is put back if that first use could not have replaced old.
func follows(d, old *backend.Definition) bool {
	switch {
	case d.Explicit || d.By == "" || d.Limits == old.Limits || (d.Kind == backend.KindConcurrency) != (old.Kind == backend.KindConcurrency):
		return true
	case strings.Contains(d.Past, digest(old.Limits)) || pastIsFull(d) || d.Generation > old.Generation:
		return true
	case strings.Contains(old.Past, digest(d.Limits)) || d.Generation < old.Generation:
		return false
	}
	serial, of, _ := strings.Cut(d.By, " ")
	oldSerial, oldOf, _ := strings.Cut(old.By, " ")
	n, err := strconv.ParseInt(serial, 10, 64)
	m, oldErr := strconv.ParseInt(oldSerial, 10, 64)
	if of == oldOf && err == nil && oldErr == nil {
		return n >= m
	}
	return d.Made >= old.Made
}

// restored is d once more, in place of a newer definition that does not follow it.
func restored(d, found *backend.Definition, seen, now int64) *backend.Definition {
	next := found.WithLimits(d.Limits, now)
	next.Version = max(next.Version, seen+1)
	next.Origin = d.Origin
	if !strings.Contains(d.Past, digest(found.Limits)) {
		next.Past = pastAfter(found, d.Past)
	}
	return next
}

// maxPast is how many limits that a first use has set are remembered, and how many that Reconfigure has set. Each
// has a number of its own, so that many calls of Reconfigure do not make the limits of the programs forgotten, which
// would then set them again when they are started again.
const maxPast = 8

// byReconfigure follows the digest of limits that no first use has set.
const byReconfigure = "r"

// pastAfter is what is remembered once d, which came after past, is replaced.
func pastAfter(d *backend.Definition, past string) string {
	first := digest(d.Limits)
	if d.Explicit && !slices.Contains(strings.Fields(past), first) {
		first += byReconfigure
	}
	return pastWith(past, first)
}

// pastWith puts a digest first, and forgets the oldest if there are too many.
func pastWith(past, first string) string {
	left := map[bool]int{false: maxPast, true: maxPast}
	var all []string
	for _, one := range append([]string{first}, strings.Fields(past)...) {
		explicit := strings.HasSuffix(one, byReconfigure)
		if left[explicit] > 0 && (len(all) == 0 || !strings.HasPrefix(one, strings.TrimSuffix(first, byReconfigure))) {
			left[explicit]--
			all = append(all, one)
		}
	}
	return strings.Join(all, " ")
}

// pastIsFull reports whether earlier limits may have been forgotten.
func pastIsFull(d *backend.Definition) bool {
	count := map[bool]int{}
	for one := range strings.FieldsSeq(d.Past) {
		count[strings.HasSuffix(one, byReconfigure)]++
	}
	return count[true] >= maxPast || count[false] >= maxPast
}

// digest is short: two limits of a limiter with the same one are mistaken for each other once in 2^32.
func digest(l backend.Limits) string {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, l.Kind, l.Permits, l.Period, l.Refill, l.Segments)
	return fmt.Sprintf("%08x", h.Sum32())
}
