// Package input reads recorded requests from CSV files and access logs, which can be compressed with gzip. A file is read once to check
// it and once more by each simulation: the requests are not kept in memory.
package input

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir/internal/saturate"
)

// Options say where a file has what.
type Options struct {
	// Time, Key and Cost are the names of the columns or fields that have the time, the key and the cost of a request. The
	// defaults are those of the format.
	Time, Key, Cost string
	// SkipBad leaves out lines that are not requests, and counts them. If false, the first such line is an error.
	SkipBad bool
}

// A Request is a request that was recorded. At is counted from the beginning of the recording.
type Request struct {
	At   time.Duration
	Key  string
	Cost int
}

// A File is a file with a request a line.
type File struct {
	Name   string
	Format func(*Options) Parser
	Options
	Open func(name string) (io.ReadCloser, error) // nil: Name is the path of a regular file

	lines int64 // how many lines are read: lines that came after the first reading are left out
}

// A Recording is what is in a File.
type Recording struct {
	Begin        time.Time // the zero Time if the file does not say it
	Count        int64
	Length       time.Duration // from the beginning to the last request
	Skipped      int64
	FirstSkipped error
	Requests     iter.Seq2[Request, error] // in the order of their times; reads the file again
}

// reorder is how much earlier than a line before it a line can be. Logs are a little out of order, because servers write them
// when requests end. The lines of that time are kept in memory.
const reorder = time.Minute

const maxHeld = 1 << 20

// Longest is how long a recording can be: in a longer one, the first or the last time must be wrong.
const Longest = 10 * 365 * 24 * time.Hour

// openRegular opens a file. A pipe is refused, because it could be read only once.
func openRegular(path string) (io.ReadCloser, error) {
	info, err := os.Stat(path) // before opening it: opening a pipe waits for the other end
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file, which can be read more than once")
	}
	return os.Open(path)
}

// A Parser reads the lines of a file. It can remember things from one line to the next.
type Parser interface {
	// parse reads a line, which is not valid afterwards. ok is false if the line is a header.
	parse(line []byte) (r record, ok bool, err error)
	// finish returns what is wrong with all lines.
	finish() error
}

type record struct {
	at   moment
	key  string
	cost int
	line int64
}

// A survey is what is known of a file when it has been read.
type survey struct {
	lines, count, skipped int64
	firstSkipped          error
	noted                 bool // there was a request
	absolute              bool // its time is a date, and so must be all others
	fractions             bool // a time has a fraction of a second
	first, last           int64
	atLast                int64 // how many requests have the last time
}

// Read reads the file once to check it.
func (f File) Read() (*Recording, error) {
	f.lines = math.MaxInt64
	if f.Open == nil {
		f.Open = openRegular
	}
	var s survey
	for e, err := range f.records(&s) {
		if err != nil {
			return nil, err
		}
		if s.count++; s.count == 1 {
			s.first = e.at.ns
		}
		if s.atLast++; e.at.ns != s.last {
			s.last, s.atLast = e.at.ns, 1
		}
	}
	switch {
	case s.count == 0 && s.skipped > 0:
		return nil, fmt.Errorf("simulate: %s has no requests; all of its %d lines were skipped, the first because: %w", f.Name, s.skipped, s.firstSkipped)
	case s.count == 0:
		return nil, fmt.Errorf("simulate: %s has no requests", f.Name)
	}
	f.lines = s.lines
	r := &Recording{Count: s.count, Skipped: s.skipped, FirstSkipped: s.firstSkipped}
	begin := int64(0)
	if s.absolute {
		begin = s.first
		r.Begin = time.Unix(0, begin).UTC()
	}
	r.Length = saturate.Add(time.Duration(s.last), -time.Duration(begin))
	if r.Length > Longest {
		return nil, fmt.Errorf("simulate: %s is %v long, which is more than %v: its first or its last time must be wrong", f.Name, r.Length, Longest)
	}
	r.Requests = f.requests(begin)
	if s.absolute && !s.fractions {
		r.Requests = spread(r.Requests)
		r.Length = saturate.Add(r.Length, time.Duration(s.atLast-1)*(time.Second/time.Duration(s.atLast)))
	}
	return r, nil
}

// requests reads the requests of a file with that beginning.
func (f File) requests(begin int64) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		for e, err := range f.records(new(survey)) {
			if !yield(Request{At: saturate.Add(time.Duration(e.at.ns), -time.Duration(begin)), Key: e.key, Cost: e.cost}, err) || err != nil {
				return
			}
		}
	}
}

// records reads the file, and notes what it finds in s. The records come in order.
func (f File) records(s *survey) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		opened, err := f.Open(f.Name)
		if err != nil {
			yield(record{}, fmt.Errorf("simulate: opening the recording: %w", err))
			return
		}
		defer func() { _ = opened.Close() }() // nothing was written
		lines, err := newLineReader(opened)
		if err != nil {
			yield(record{}, fmt.Errorf("simulate: %s: %w", f.Name, err))
			return
		}
		var held []record // in order
		var latest record
		handedOut := int64(math.MinInt64) // the latest time
		handOut := func(until int64) bool {
			for len(held) > 0 && (held[0].at.ns <= until || len(held) > maxHeld) {
				e := held[0]
				held, handedOut = held[1:], e.at.ns
				if !yield(e, nil) {
					return false
				}
			}
			return true
		}
		parser := f.Format(&f.Options)
		for lines.number < f.lines {
			e, err := f.record(lines, parser, s)
			switch {
			case errors.Is(err, io.EOF):
				if err := parser.finish(); err != nil && s.noted {
					yield(record{}, fmt.Errorf("simulate: %s: %w", f.Name, err))
					return
				}
				handOut(math.MaxInt64)
				return
			case err != nil:
				yield(record{}, err)
				return
			case e.line == 0:
				continue
			}
			if late := saturate.Add(latest.at.ns, -e.at.ns); latest.line > 0 && (late > int64(reorder) || e.at.ns < handedOut) {
				yield(record{}, fmt.Errorf("simulate: %s:%d: the time is %v before that of line %d; lines can be out of order by %v",
					f.Name, e.line, time.Duration(late), latest.line, reorder))
				return
			}
			if latest.line == 0 || e.at.ns > latest.at.ns {
				latest = e
			}
			at, _ := slices.BinarySearchFunc(held, e, func(h, e record) int {
				return cmp.Or(cmp.Compare(h.at.ns, e.at.ns), -1) // behind those of the same time
			})
			held = slices.Insert(held, at, e)
			if !handOut(saturate.Add(latest.at.ns, -int64(reorder))) {
				return
			}
		}
		handOut(math.MaxInt64)
	}
}

// record reads a line. If it is not a request, the record has no line.
func (f *File) record(lines *lineReader, parser Parser, s *survey) (record, error) {
	e, err := record{}, error(nil)
	if line, bad := lines.next(); bad != nil {
		err = bad
	} else if r, ok, wrong := parser.parse(line); wrong != nil {
		err = wrong
	} else if ok {
		e, e.key, e.line = r, strings.Clone(r.key), lines.number // not the whole line
		err = s.note(r)
	}
	if err == nil || errors.Is(err, io.EOF) {
		s.lines = lines.number
		return e, err
	}
	bad, isBad := errors.AsType[badLineError](err)
	if !isBad {
		return record{}, fmt.Errorf("simulate: %s: after line %d: %w", f.Name, lines.number, err)
	}
	err = fmt.Errorf("simulate: %s:%d: %w", f.Name, lines.number, bad)
	if !f.SkipBad {
		return record{}, err
	}
	s.lines = lines.number
	if s.skipped++; s.skipped == 1 {
		s.firstSkipped = err
	}
	return record{}, nil
}

// note notes what a line says about the file, or returns what is wrong with it.
func (s *survey) note(r record) error {
	switch {
	case s.noted && r.at.absolute != s.absolute:
		return badLineError("times are dates or relative to the beginning, and this one is not like those before it")
	case !utf8.ValidString(r.key):
		return badLineError("the key " + shown(r.key) + " is not UTF-8")
	}
	s.absolute, s.noted = r.at.absolute, true
	s.fractions = s.fractions || r.at.ns%int64(time.Second) != 0
	return nil
}

// spread spaces the requests of each second evenly in it. A log with times of whole seconds would otherwise make a burst of
// each second.
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
