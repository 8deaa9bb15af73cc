package simulate

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/validate"
)

// RecordingOptions say how [ReadCSV] and [ReadAccessLog] read a file. The zero value has the defaults.
type RecordingOptions struct {
	// Time, Key and Cost are the names of the columns or fields that have the time, the key and the cost of a request. The
	// defaults are those of the function.
	Time string `json:"time,omitempty" yaml:"time,omitempty"`
	Key  string `json:"key,omitempty" yaml:"key,omitempty"`
	Cost string `json:"cost,omitempty" yaml:"cost,omitempty"`
	// Reorder is how much earlier than a line before it a line can be. Logs are a little out of order, because servers
	// write them when requests end. The requests are brought into order, for which those of that time are kept in memory,
	// at most a million. The default is a minute; -1 means that the lines must be in order.
	Reorder time.Duration `json:"reorder,omitempty" yaml:"reorder,omitempty" reload:"off,default=1m"`
	// SkipBad leaves out lines that are not requests, and counts them in [Recording.Skipped]. If false, the first such line
	// is an error.
	SkipBad bool `json:"skip_bad,omitempty" yaml:"skip_bad,omitempty"`
	// KeepSeconds keeps times as they are. If false, and if all times are dates without a fraction of a second, the
	// requests of each second are evenly spaced in it: otherwise they would arrive in one burst that never was.
	KeepSeconds bool `json:"keep_seconds,omitempty" yaml:"keep_seconds,omitempty"`
	// Open opens the file of that name, from its beginning. It is called once for each reading. If nil, the name is the
	// path of a regular file.
	Open func(name string) (io.ReadCloser, error) `json:"-" yaml:"-"`
}

// DefaultReorder is the default of [RecordingOptions.Reorder].
const DefaultReorder = time.Minute

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil.
func (o *RecordingOptions) Validate() error {
	var p validate.Problems
	if o != nil && o.Reorder < -1 {
		p.Add("Reorder", o.Reorder, "must be at least 0, or -1 for none")
	}
	return p.Err("simulate")
}

// withDefaults returns o with the defaults filled in, except the names. A nil o stands for the zero value.
func (o *RecordingOptions) withDefaults() RecordingOptions {
	var full RecordingOptions
	if o != nil {
		full = *o
	}
	switch full.Reorder {
	case 0:
		full.Reorder = DefaultReorder
	case -1:
		full.Reorder = 0
	}
	if full.Open == nil {
		full.Open = openRegular
	}
	return full
}

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

// A lineParser reads the lines of a file. It can remember things from one line to the next.
type lineParser interface {
	// parse reads a line, which is not valid afterwards. ok is false if the line is a header.
	parse(line []byte) (at moment, key string, cost int, ok bool, err error)
	// finish returns what is wrong with all lines.
	finish() error
}

// A recordingFile is a file with a request a line.
type recordingFile struct {
	name    string
	options RecordingOptions
	parser  func(*RecordingOptions) lineParser
	lines   int64 // how many lines are read: lines that came after the first reading are left out
}

// A survey is what is known of a file when it has been read.
type survey struct {
	lines, count, skipped int64
	firstSkipped          error
	noted                 bool // whether there was a request, and then absolute is set
	absolute              bool // the times are dates
	fractions             bool // a time has a fraction of a second
	first, last           int64
	atLast                int64 // how many requests have the last time
}

// recording reads the file once.
func (f *recordingFile) recording() (*Recording, error) {
	if err := f.options.Validate(); err != nil {
		return nil, err
	}
	f.options = f.options.withDefaults()
	f.lines = math.MaxInt64
	var s survey
	for e, err := range f.entries(&s) {
		if err != nil {
			return nil, err
		}
		if s.count++; s.count == 1 {
			s.first = e.at
		}
		if s.atLast++; e.at != s.last {
			s.last, s.atLast = e.at, 1
		}
	}
	switch {
	case s.count == 0 && s.skipped > 0:
		return nil, fmt.Errorf("simulate: %s has no requests; all of its %d lines were skipped, the first because: %w", f.name, s.skipped, s.firstSkipped)
	case s.count == 0:
		return nil, fmt.Errorf("simulate: %s has no requests", f.name)
	}
	f.lines = s.lines
	r := &Recording{Count: s.count, Skipped: s.skipped, FirstSkipped: s.firstSkipped}
	begin := int64(0)
	if s.absolute {
		begin = s.first
		r.Begin = time.Unix(0, begin).UTC()
	}
	r.Length = saturate.Add(time.Duration(s.last), -time.Duration(begin))
	if err := tooLong(f.name, r.Length); err != nil {
		return nil, err
	}
	r.requests = f.requests(begin)
	if s.absolute && !s.fractions && !f.options.KeepSeconds {
		r.requests = spread(r.requests)
		r.Length = saturate.Add(r.Length, time.Duration(s.atLast-1)*(time.Second/time.Duration(s.atLast)))
	}
	return r, nil
}

// requests reads the requests of a recording with that beginning.
func (f *recordingFile) requests(begin int64) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		for e, err := range f.entries(new(survey)) {
			if !yield(Request{At: saturate.Add(time.Duration(e.at), -time.Duration(begin)), Key: e.key, Cost: e.cost}, err) || err != nil {
				return
			}
		}
	}
}

// entries reads the file, and notes what it finds in s. The entries come in order.
func (f *recordingFile) entries(s *survey) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		opened, err := f.options.Open(f.name)
		if err != nil {
			yield(entry{}, fmt.Errorf("simulate: opening the recording: %w", err))
			return
		}
		defer func() { _ = opened.Close() }() // nothing was written
		lines, err := newLineReader(opened)
		if err != nil {
			yield(entry{}, fmt.Errorf("simulate: %s: %w", f.name, err))
			return
		}
		order := newReorder(f.options.Reorder)
		handOut := func(all bool) bool {
			for {
				e, ok := order.take(all)
				if !ok || !yield(e, nil) {
					return !ok
				}
			}
		}
		parser := f.parser(&f.options)
		for lines.number < f.lines {
			e, err := f.entry(lines, parser, s)
			switch {
			case errors.Is(err, io.EOF):
				if err := parser.finish(); err != nil && s.noted {
					yield(entry{}, fmt.Errorf("simulate: %s: %w", f.name, err))
					return
				}
				handOut(true)
				return
			case err != nil:
				yield(entry{}, err)
				return
			case e.line == 0:
				continue
			}
			if latest := order.latest; !order.add(e) {
				yield(entry{}, fmt.Errorf("simulate: %s:%d: the time is %v before that of line %d; lines can be out of order by %v, see Reorder",
					f.name, e.line, time.Duration(saturate.Add(latest.at, -e.at)), latest.line, f.options.Reorder))
				return
			}
			if !handOut(false) {
				return
			}
		}
		handOut(true)
	}
}

// entry reads a line. If it is not a request, the entry has no line.
func (f *recordingFile) entry(lines *lineReader, parser lineParser, s *survey) (entry, error) {
	e, err := entry{}, error(nil)
	if line, bad := lines.next(); bad != nil {
		err = bad
	} else if at, key, cost, ok, wrong := parser.parse(line); wrong != nil {
		err = wrong
	} else if ok {
		e = entry{at: at.ns, line: lines.number, key: strings.Clone(key), cost: cost} // not the whole line
		err = s.note(at, e)
	}
	if err == nil || errors.Is(err, io.EOF) {
		s.lines = lines.number
		return e, err
	}
	bad, isBad := errors.AsType[badLineError](err)
	if !isBad {
		return entry{}, fmt.Errorf("simulate: %s: after line %d: %w", f.name, lines.number, err)
	}
	err = fmt.Errorf("simulate: %s:%d: %w", f.name, lines.number, bad)
	if !f.options.SkipBad {
		return entry{}, err
	}
	s.lines = lines.number
	if s.skipped++; s.skipped == 1 {
		s.firstSkipped = err
	}
	return entry{}, nil
}

// note notes what a line says about the file, or returns what is wrong with it.
func (s *survey) note(at moment, e entry) error {
	switch {
	case s.noted && at.absolute != s.absolute:
		return badLineError("times are dates or relative to the beginning, and this one is not like those before it")
	case e.cost < 0:
		return badLineError(fmt.Sprintf("the cost %d must be at least 0", e.cost))
	case !utf8.ValidString(e.key):
		return badLineError("the key " + shown(e.key) + " is not UTF-8")
	}
	s.absolute, s.noted = at.absolute, true
	s.fractions = s.fractions || at.ns%int64(time.Second) != 0
	return nil
}
