package input

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// from reads a text in place of a file.
func from(name string, format func(*Options) Parser, text string, o Options) (*Recording, error) {
	return File{Name: name, Format: format, Options: o, Open: func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(text)), nil
	}}.Read()
}

// listed returns the requests of a recording as texts.
func listed(t *testing.T, r *Recording) []string {
	t.Helper()
	var all []string
	for q, err := range r.Requests {
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("%v %s %d", q.At, q.Key, q.Cost))
	}
	require.Len(t, all, int(r.Count))
	return all
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text) // a Buffer takes it all
	_ = w.Close()
	return b.String()
}

func TestCSV(t *testing.T) {
	for name, tt := range map[string]struct {
		text    string
		options Options
		want    []string
	}{
		"no header":        {text: "0,a,1\n1.5,b,2\n", want: []string{"0s a 1", "1.5s b 2"}},
		"times only":       {text: "0\n0\n1s\n1m\n", want: []string{"0s  1", "0s  1", "1s  1", "1m0s  1"}},
		"header":           {text: "cost,time,x,KEY\n3,1,,a", want: []string{"1s a 3"}},
		"named":            {text: "when,who\n1,a\n2", options: Options{Time: "when", Key: "who"}, want: []string{"1s a 1", "2s  1"}},
		"CRLF, BOM, blank": {text: "\ufefftime,key\r\n\r\n1,a\r\n \r\n", want: []string{"1s a 1"}},
		"tabs":             {text: "1\ta,b\t2", want: []string{"1s a,b 2"}},
		"quotes":           {text: "1,\"a, \"\"b\"\"\",\"2\"\n2,\"\"", want: []string{`1s a, "b" 2`, "2s  1"}},
		"gzip":             {text: gzipped("1,a\n2,b\n") + gzipped("3,c\n"), want: []string{"1s a 1", "2s b 1", "3s c 1"}},
		"gzip with BOM":    {text: gzipped("\ufeff1,a"), want: []string{"1s a 1"}},
		"seconds":          {text: "1774742400.123456789\n1774742401.5", want: []string{"0s  1", "1.376543211s  1"}},
		"milliseconds":     {text: "1774742400123\n1774742401000.5", want: []string{"0s  1", "877.5ms  1"}},
		"microseconds":     {text: "1774742400123456\n1774742401000000", want: []string{"0s  1", "876.544ms  1"}},
		"nanoseconds":      {text: "1774742400123456789\n1774742401000000000", want: []string{"0s  1", "876.543211ms  1"}},
		"exponent":         {text: "1.7747424e9\n1.7747424005e9", want: []string{"0s  1", "500ms  1"}},
		"out of order":     {text: "5,a\n3,b\n5,c\n4,d", want: []string{"3s b 1", "4s d 1", "5s a 1", "5s c 1"}},
		// When summer time begins and ends, the clock jumps and time does not.
		"summer time": {
			text: "2026-03-29T01:59:59.9+01:00\n2026-03-29T03:00:00+02:00\n2026-10-25T02:59:59+02:00\n2026-10-25 02:00:00+01\n",
			want: []string{"0s  1", "100ms  1", "5039h59m59.1s  1", "5040h0m0.1s  1"},
		},
		// Dates of whole seconds are spread, and their own duplicates are not, unless there is a fraction anywhere.
		"spread":       {text: "1774742400,a\n1774742400,b\n1774742401,c\n1774742402,d\n1774742402,e", want: []string{"0s a 1", "500ms b 1", "1s c 1", "2s d 1", "2.5s e 1"}},
		"not spread":   {text: "1774742400,a\n1774742400,b\n1774742402.5,c", want: []string{"0s a 1", "0s b 1", "2.5s c 1"}},
		"years before": {text: "1901-01-01T00:00:00.5Z\n1901-01-01T00:00:01Z", want: []string{"0s  1", "500ms  1"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := from("some.csv", CSV, tt.text, tt.options)
			require.NoError(t, err)
			assert.Equal(t, tt.want, listed(t, r))
			assert.Equal(t, tt.want, listed(t, r), "read again")
			assert.True(t, strings.HasPrefix(tt.want[len(tt.want)-1], r.Length.String()+" "), "%v", r.Length)
		})
	}
}

func TestCSV_Errors(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "simulate: some.csv has no requests",
		"\ufeff":                    "simulate: some.csv has no requests",
		"time,key\n":                "simulate: some.csv has no requests",
		"0,a\n-1,b":                 `simulate: some.csv:2: the time "-1" must be at least 0`,
		"0,a\n\n-1s,b":              `simulate: some.csv:3: the time "-1s" must be at least 0`,
		"0,a\n,b":                   "simulate: some.csv:2: the time is missing",
		"0,a,-2":                    `simulate: some.csv:1: the cost "-2" must be a whole number of at least 0`,
		"0,a,1.5":                   `simulate: some.csv:1: the cost "1.5" must be a whole number of at least 0`,
		"0,a,99999999999999999999":  `simulate: some.csv:1: the cost "99999999999999999999" must be a whole number of at least 0`,
		"0,\"a":                     "simulate: some.csv:1: a quotation mark in the line has no other one, or stands where there can be none",
		"0,\"a\"b":                  "simulate: some.csv:1: a quotation mark in the line has no other one, or stands where there can be none",
		"0,a\xff":                   `simulate: some.csv:1: the key "a\xff" is not UTF-8`,
		"0,a\n0,b\x00":              "simulate: some.csv:2: the line has a NUL byte",
		"120,a\n59,b":               "simulate: some.csv:2: the time is 1m1s before that of line 1; lines can be out of order by 1m0s",
		"1,a\n2026-03-29T01:00:00Z": "simulate: some.csv:2: times are dates or relative to the beginning, and this one is not like those before it",
		"2026-03-29T01:00:00":       `simulate: some.csv:1: it is no header with the column "time", and no request: the time "2026-03-29T01:00:00" has no time zone, such as Z or +01:00`,
		"1,a\n2026-02-30T01:00:00Z": `simulate: some.csv:2: the time "2026-02-30T01:00:00Z" is not like 2006-01-02T15:04:05Z`,
		"1,a\n1066-10-14T01:00:00Z": `simulate: some.csv:2: the year of the time "1066-10-14T01:00:00Z" is not between 1678 and 2261`,
		"1,a\n99999999999999999999": `simulate: some.csv:2: the time "99999999999999999999" is out of range`,
		"1,a\nnoon":                 `simulate: some.csv:2: the time "noon" must be like 2006-01-02T15:04:05Z, Unix seconds, or a duration such as "1.5s"`,
		"1700-01-01T00:00:00Z\n2200-01-01T00:00:00Z": "simulate: some.csv is 2562047h47m16.854775807s long, which is more than 87600h0m0s: its first or its last time must be wrong",
		"when,key\n1,a":                     `simulate: some.csv:1: it is no header with the column "time", and no request: the time "when" must be like 2006-01-02T15:04:05Z, Unix seconds, or a duration such as "1.5s"`,
		"1," + strings.Repeat("a", maxLine): "simulate: some.csv:1: the line is longer than 1048576 bytes",
		"\xff\xfe1\x00":                     "simulate: some.csv: it is UTF-16: convert it to UTF-8",
		"\x28\xb5\x2f\xfd":                  "simulate: some.csv: it is compressed with zstd: decompress it, or use gzip",
		"BZh9":                              "simulate: some.csv: it is compressed with bzip2: decompress it, or use gzip",
		gzipped("1,a\n2,b")[:25]:            "simulate: some.csv: after line 1: unexpected EOF",
		"\x1f\x8b":                          "simulate: some.csv: unexpected EOF",
	} {
		_, err := from("some.csv", CSV, text, Options{})
		assert.EqualError(t, err, want, "%.50q", text)
	}

	_, err := from("some.csv", CSV, "time\n1", Options{Key: "who"})
	assert.EqualError(t, err, `simulate: some.csv:1: the first line must be a header with the column "who"`)
	_, err = from("some.csv", CSV, "time,key,Key\n1,a,b\n", Options{})
	assert.EqualError(t, err, `simulate: some.csv:1: the header has the column "key" twice`)
	_, err = File{Name: filepath.Join(t.TempDir(), "none.csv"), Format: CSV}.Read()
	assert.ErrorContains(t, err, "none.csv")
	_, err = File{Name: t.TempDir(), Format: CSV}.Read()
	assert.ErrorContains(t, err, "it is not a regular file")
}

func TestCSV_SkipBad(t *testing.T) {
	text := "1,a\nnoon,b\n2," + strings.Repeat("long", maxLine) + "\n3,c,-1\n4,d\x00\n\n5,e"
	r, err := from("some.csv", CSV, text, Options{SkipBad: true})
	require.NoError(t, err)
	assert.Equal(t, []string{"1s a 1", "5s e 1"}, listed(t, r))
	assert.Equal(t, int64(4), r.Skipped)
	assert.ErrorContains(t, r.FirstSkipped, `some.csv:2: the time "noon"`)

	_, err = from("some.csv", CSV, "one\ntwo", Options{SkipBad: true})
	assert.ErrorContains(t, err, "simulate: some.csv has no requests; all of its 2 lines were skipped, the first because: simulate: some.csv:1: ")
}

// A log that is written on has the requests that it had at first.
func TestFile_Grows(t *testing.T) {
	text := "1,a\n5,b\n"
	r, err := File{Name: "some.csv", Format: CSV, Open: func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}.Read()
	require.NoError(t, err)
	text += "4,c\n"
	assert.Equal(t, []string{"1s a 1", "5s b 1"}, listed(t, r))
}

// Several simulations read a recording at the same time.
func TestFile_Concurrent(t *testing.T) {
	r, err := File{Name: "testdata/combined.log", Format: AccessLog}.Read()
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			n := int64(0)
			for _, err := range r.Requests {
				assert.NoError(t, err)
				n++
			}
			assert.Equal(t, r.Count, n)
		})
	}
	wg.Wait()
}

// failing fails after some bytes.
type failing struct {
	io.Reader
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = f.err
	}
	return n, err
}

func (f *failing) Close() error { return nil }

func TestCSV_ReadFails(t *testing.T) {
	broken := errors.New("broken")
	_, err := File{Name: "some.csv", Format: CSV, Options: Options{SkipBad: true}, Open: func(string) (io.ReadCloser, error) {
		return &failing{strings.NewReader("1,a\n2,b"), broken}, nil
	}}.Read()
	assert.ErrorIs(t, err, broken)
	assert.EqualError(t, err, "simulate: some.csv: after line 1: broken")
}
