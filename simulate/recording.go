package simulate

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/weir-go/weir/simulate/internal/input"
)

// A Recording is requests that were recorded, in the order of their times. It is made by [ReadCSV], [ReadAccessLog] or
// [RecordingOf]. Several simulations can use it, also at the same time.
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

	requests iter.Seq2[input.Request, error]
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

// RecordingOptions say how [ReadCSV] and [ReadAccessLog] read a file.
type RecordingOptions struct {
	// Time, Key and Cost are the names of the columns or fields that have the time, the key and the cost of a request. The
	// defaults are those of the function.
	Time, Key, Cost string
	// SkipBad leaves out lines that are not requests, and counts them in [Recording.Skipped]. If false, the first such line
	// is an error.
	SkipBad bool
}

// ReadCSV reads a recording of a CSV file, which can be compressed with gzip. If o is nil, the defaults apply.
//
// The columns are the time, the key and the cost of a request, in this order. If the first line has no time, it is a
// header, the columns can have any order, and columns of other names are ignored; the names are "time", "key" and "cost"
// unless o has others. The key and the cost can be left out: then the key is empty and the cost 1.
//
// A time is a date as in RFC 3339, such as 2026-03-29T01:30:00.5+01:00; a number of seconds, milliseconds, microseconds
// or nanoseconds since 1970; or, below 100,000,000, the seconds from the beginning, which can also be a duration such as
// 1m30s. If all times are dates without a fraction of a second, the requests of each second are evenly spaced in it. Lines
// can be out of order by a minute.
//
// The separator is a comma, a semicolon or a tab. A value in quotes can have separators, but not a line break.
//
// ReadCSV reads the whole file to check it, and each simulation reads it again: the requests are not kept in memory. It must
// be a regular file.
func ReadCSV(name string, o *RecordingOptions) (*Recording, error) {
	return readRecording(name, input.CSV, o)
}

// ReadAccessLog reads a recording of an access log, which can be compressed with gzip: of nginx, Envoy or Caddy as JSON
// with an object a line, or in the common or combined log format of nginx and Apache. If o is nil, the defaults apply.
//
// The fields of JSON are named by paths such as "request.headers.X-Api-Key"; of an array, the first element counts. By
// default the time is in the first of the fields ts (Caddy), start_time (Envoy), msec, time_iso8601, time_local (nginx),
// @timestamp, timestamp or time, and the key in the first of request.client_ip, request.remote_ip (Caddy), remote_addr
// (nginx), downstream_remote_address (Envoy), client_ip or remote_ip. The cost is 1 by default.
//
// The fields of the combined format are remote_addr, which is the key by default, remote_user, time_local, request,
// status, body_bytes_sent, http_referer and http_user_agent.
//
// A request that has no value for its key has an empty one. An address is taken without its port. Times are like those
// of [ReadCSV]. They are when requests arrived if the log says so, as start_time does; else they are when requests ended.
func ReadAccessLog(name string, o *RecordingOptions) (*Recording, error) {
	return readRecording(name, input.AccessLog, o)
}

func readRecording(name string, format func(*input.Options) input.Parser, o *RecordingOptions) (*Recording, error) {
	f := input.File{Name: name, Format: format}
	if o != nil {
		f.Options = input.Options(*o)
	}
	r, err := f.Read()
	if err != nil {
		return nil, err
	}
	return &Recording{Begin: r.Begin, Count: r.Count, Length: r.Length, Skipped: r.Skipped, FirstSkipped: r.FirstSkipped, requests: r.Requests}, nil
}

// RecordingOf returns a recording of requests that are in memory. It returns an error if there are none, if their times are
// not in order or longer than ten years, or if a time or a cost is negative. requests must not be changed afterwards.
func RecordingOf(requests []Request) (*Recording, error) {
	var last time.Duration
	for i, q := range requests {
		switch {
		case q.At < 0:
			return nil, fmt.Errorf("simulate: request %d of the recording is at %v, which must be at least 0", i, q.At)
		case q.At < last:
			return nil, fmt.Errorf("simulate: request %d of the recording is at %v, before the previous one at %v", i, q.At, last)
		case q.Cost < 0:
			return nil, fmt.Errorf("simulate: request %d of the recording costs %d, which must be at least 0", i, q.Cost)
		}
		last = q.At
	}
	switch {
	case len(requests) == 0:
		return nil, errors.New("simulate: the recording has no requests")
	case last > input.Longest:
		return nil, fmt.Errorf("simulate: the recording is %v long, which is more than %v", last, input.Longest)
	}
	return &Recording{Count: int64(len(requests)), Length: last, requests: func(yield func(input.Request, error) bool) {
		for _, q := range requests {
			if !yield(input.Request(q), nil) {
				return
			}
		}
	}}, nil
}

// all returns the requests. It ends with the first error: of reading, or of a file that does not have Count requests any more.
func (r *Recording) all() iter.Seq2[input.Request, error] {
	return func(yield func(input.Request, error) bool) {
		var count int64
		for q, err := range r.requests {
			if count++; err == nil && count > r.Count {
				err = errChanged
			}
			if !yield(q, err) || err != nil {
				return
			}
		}
		if count < r.Count {
			yield(input.Request{}, errChanged)
		}
	}
}

var errChanged = errors.New("simulate: the recording has changed since it was first read")
