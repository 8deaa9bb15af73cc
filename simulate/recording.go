package simulate

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

// A Recording is requests that were recorded, in the order of their times. It is made by [ReadCSV], [ReadAccessLog],
// [RecordingOf] or [NewRecording]. It can be used by several simulations, also at the same time, unless it was made by
// NewRecording of a sequence that cannot.
type Recording struct {
	// Begin is when the recording begins. It is the zero Time if the recording does not say so.
	Begin time.Time
	// Count is how many requests there are.
	Count int64
	// Length is the time from the beginning to the last request.
	Length time.Duration
	// Skipped is how many lines were left out because they are not requests, see [RecordingOptions.SkipBad].
	Skipped int64
	// FirstSkipped says what is wrong with the first of these lines. It is nil if there are none.
	FirstSkipped error

	requests iter.Seq2[Request, error]
}

// A Request is a request of a [Recording].
type Request struct {
	// At is when it arrives, after the beginning of the simulation.
	At time.Duration
	// Key is its key, such as the address of the client.
	Key string
	// Cost is how many permits it takes, if the pipeline's limiter asks [Cost].
	Cost int
}

// RecordingOf returns a recording of requests that are in memory. It returns an error if their times are not in order, or
// if a time or a cost is negative. requests must not be changed afterwards.
func RecordingOf(requests []Request) (*Recording, error) {
	return NewRecording(func(yield func(Request, error) bool) {
		for _, q := range requests {
			if !yield(q, nil) {
				return
			}
		}
	})
}

// NewRecording returns a recording of the requests that a sequence has, such as rows of a database. It goes through the
// sequence once to check it, and each simulation once more. The sequence must have the same requests each time, and ends
// with its first error. NewRecording returns that error, or one if the times are not in order, if a time or a cost is
// negative, or if the recording is longer than ten years.
func NewRecording(requests iter.Seq2[Request, error]) (*Recording, error) {
	r := &Recording{requests: requests}
	var count int64
	var length time.Duration
	for q, err := range r.All() {
		if err != nil {
			return nil, err
		}
		count, length = count+1, q.At
	}
	if count == 0 {
		return nil, errors.New("simulate: the recording has no requests")
	}
	r.Count, r.Length = count, length
	if err := tooLong("the recording", length); err != nil {
		return nil, err
	}
	return r, nil
}

// tooLong returns an error if a recording is so long that one of its times must be wrong.
func tooLong(name string, length time.Duration) error {
	if length > longestLoad {
		return fmt.Errorf("simulate: %s is %v long, which is more than %v: its first or its last time must be wrong", name, length, longestLoad)
	}
	return nil
}

// All returns the requests in the order of their times. The sequence ends with the first error: of reading, of a request
// that is not valid, or of a recording that does not have Count requests any more.
func (r *Recording) All() iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		var count int64
		var last time.Duration
		for q, err := range r.requests {
			if err == nil {
				err = valid(q, count, last)
			}
			if err == nil && count == r.Count && count > 0 {
				err = errChanged
			}
			if err != nil {
				yield(Request{}, err)
				return
			}
			count, last = count+1, q.At
			if !yield(q, nil) {
				return
			}
		}
		if count < r.Count {
			yield(Request{}, errChanged)
		}
	}
}

var errChanged = errors.New("simulate: the recording has changed since it was first read")

// valid returns an error if a request cannot follow others, of which the last is at that time.
func valid(q Request, number int64, last time.Duration) error {
	switch {
	case q.At < 0:
		return fmt.Errorf("simulate: request %d of the recording is at %v, which must be at least 0", number, q.At)
	case q.At < last:
		return fmt.Errorf("simulate: request %d of the recording is at %v, before the previous one at %v", number, q.At, last)
	case q.Cost < 0:
		return fmt.Errorf("simulate: request %d of the recording costs %d, which must be at least 0", number, q.Cost)
	}
	return nil
}

// spread returns requests of whole seconds so that the requests of each second are evenly spaced in it.
func spread(requests iter.Seq2[Request, error]) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		var second []Request
		flush := func() bool {
			for i, q := range second {
				gap := time.Second / time.Duration(len(second))
				q.At = saturate.Add(q.At, time.Duration(i)*gap)
				if !yield(q, nil) {
					return false
				}
			}
			second = second[:0]
			return true
		}
		for q, err := range requests {
			if (err != nil || len(second) > 0 && second[0].At != q.At) && !flush() {
				return
			}
			if err != nil {
				yield(q, err)
				return
			}
			second = append(second, q)
		}
		flush()
	}
}
