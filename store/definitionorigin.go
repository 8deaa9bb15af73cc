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

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// stampSerial numbers the stamps of this process.
var stampSerial atomic.Int64

// A stamp says when a limiter was made or Reconfigure was called, and in which order within this process.
type stamp struct {
	at     time.Time
	serial int64
}

func newStamp() stamp { return stamp{at: time.Now(), serial: stampSerial.Add(1)} }

// String is unique among all processes.
func (st stamp) String() string { return fmt.Sprint(st.serial, " ", processID) }

// time returns the time of the stamp by the store's clock, which shows now.
func (st stamp) time(now int64) int64 { return now - time.Since(st.at).Microseconds() }

// after reports whether the stamp is not earlier than the origin of d. If both are of this process, their order in it
// decides, else the store's clock.
func (st stamp) after(d *backend.Definition, now int64) bool {
	if serial, of, ok := strings.Cut(d.By, " "); ok && of == processID {
		n, err := strconv.ParseInt(serial, 10, 64)
		return err != nil || st.serial >= n
	}
	return st.time(now) >= d.Made
}

// origin returns the origin of limits that this limiter sets in place of d, which can be nil. now is the store's time.
func (c *core) origin(d *backend.Definition, to rate.Schedule, why defineReason, by stamp, now int64) backend.Origin {
	o := backend.Origin{Generation: c.o.Generation, Explicit: why != forFirstUse, Made: by.time(now), By: by.String()}
	if d != nil {
		o.Past = d.Past
		if o.Explicit { // Reconfigure in an older program must not lower the Generation that a newer program has set
			o.Generation = max(o.Generation, d.Generation)
		}
	}
	// Reconfigure replaces the constructor's limits even if the limiter has not set them yet.
	if o.Explicit && c.madeWith != to && !strings.Contains(o.Past, digest(c.madeWith)) {
		o.Past = prependDigest(o.Past, digest(c.madeWith))
	}
	if d != nil && d.Limits() != to {
		o.Past = pastOfSuccessor(d, o.Past)
	}
	return o
}

// firstUseRefusal returns why the first use of this limiter must not set its limits in place of d, or nil: a program
// that starts late would bring back limits that were changed since it was made.
func (c *core) firstUseRefusal(d *backend.Definition, wanted rate.Schedule, now int64) error {
	switch g := c.o.Generation; {
	case g > d.Generation:
		return nil
	case g < d.Generation:
		return fmt.Errorf("generation %d is in force, and this limiter is of generation %d", d.Generation, g)
	case strings.Contains(d.Past, digest(wanted)):
		return errors.New("newer limits have replaced the limits of this limiter")
	case c.madeAt.after(d, now):
		return nil
	case d.Explicit:
		return errors.New("Reconfigure was called after this limiter was made")
	}
	return errors.New("a limiter that was made later has set its limits")
}

// follows reports whether d was, or could have been, set in place of old, which is older. If not, the caller restores old.
// The scenario without it: the store loses old, and the first use of an older program sets d, which old would have
// prevented.
func follows(d, old *backend.Definition) bool {
	switch {
	case d.Explicit || d.By == "" || d.Limits() == old.Limits() || (d.Kind == rate.Concurrency) != (old.Kind == rate.Concurrency):
		return true
	case strings.Contains(d.Past, digest(old.Limits())) || pastIsFull(d) || d.Generation > old.Generation:
		return true
	case strings.Contains(old.Past, digest(d.Limits())) || d.Generation < old.Generation:
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

// restored returns the definition that brings back the limits of d in place of found, which does not follow d.
func restored(d, found *backend.Definition, seen, now int64) *backend.Definition {
	base, lost := configured(d), configured(found)
	origin := base.Origin
	if !strings.Contains(origin.Past, digest(lost.Limits())) {
		origin.Past = pastOfSuccessor(lost, origin.Past)
	}
	over := overrideIn(d)
	if over == nil || over.over(now) {
		over = overrideIn(found)
	}
	return successor(found, base.Limits(), origin, over, seen, now)
}

// maxPast is how many limits set by first uses are remembered, and how many set by Reconfigure. They are counted
// separately, so that many calls of Reconfigure do not displace the limits of programs, which would then set them again
// at their next start.
const maxPast = 8

// byReconfigure is the suffix of a digest of limits that no first use has set.
const byReconfigure = "r"

// pastOfSuccessor returns the Past of the definition that replaces d: the limits of d, and then past.
func pastOfSuccessor(d *backend.Definition, past string) string {
	first := digest(d.Limits())
	if d.Explicit && !slices.Contains(strings.Fields(past), first) {
		first += byReconfigure
	}
	return prependDigest(past, first)
}

// prependDigest puts a digest first, and drops the oldest if there are too many.
func prependDigest(past, first string) string {
	left := map[bool]int{false: maxPast, true: maxPast}
	var all []string
	for _, d := range append([]string{first}, strings.Fields(past)...) {
		explicit := strings.HasSuffix(d, byReconfigure)
		if left[explicit] > 0 && (len(all) == 0 || !strings.HasPrefix(d, strings.TrimSuffix(first, byReconfigure))) {
			left[explicit]--
			all = append(all, d)
		}
	}
	return strings.Join(all, " ")
}

// pastIsFull reports whether digests may have been dropped.
func pastIsFull(d *backend.Definition) bool {
	count := map[bool]int{}
	for digest := range strings.FieldsSeq(d.Past) {
		count[strings.HasSuffix(digest, byReconfigure)]++
	}
	return count[true] >= maxPast || count[false] >= maxPast
}

// digest returns a hash of l in 8 characters. Two different limits have the same digest with a probability of 2^-32.
func digest(l rate.Schedule) string {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, l.Kind, l.Permits, l.Period, l.Refill, l.Segments)
	return fmt.Sprintf("%08x", h.Sum32())
}
