package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadAccessLog(t *testing.T) {
	for _, tt := range []struct {
		file    string
		options RecordingOptions
		begin   string
		want    []string
	}{
		{"caddy.log", RecordingOptions{}, "2026-03-29T00:00:00.25Z", []string{"0s 198.51.100.4 1", "1.25s 198.51.100.4 1", "1.5s 198.51.100.9 1"}},
		{"caddy.log", RecordingOptions{Key: "request.headers.X-Api-Key", Cost: "size"}, "2026-03-29T00:00:00.25Z", []string{"0s alice 512", "1.25s alice 512", "1.5s  512"}},
		{"nginx.log", RecordingOptions{Cost: "permits"}, "2026-03-29T00:00:00.25Z", []string{"0s 198.51.100.4 2", "750ms 2001:db8::7 1"}},
		{"envoy.log", RecordingOptions{}, "2026-03-29T00:59:59.9Z", []string{"0s 198.51.100.4 1", "200ms 2001:db8::7 1"}},
		{"envoy.log", RecordingOptions{Key: "x-forwarded-for"}, "2026-03-29T00:59:59.9Z", []string{"0s  1", "200ms  1"}},
		{"combined.log", RecordingOptions{}, "2026-03-29T00:59:59Z", []string{"0s 198.51.100.4 1", "1s 198.51.100.9 1", "1.5s 198.51.100.4 1", "2s 2001:db8::7 1"}},
		{"combined.log", RecordingOptions{Key: "remote_user", Cost: "body_bytes_sent", KeepSeconds: true}, "2026-03-29T00:59:59Z", []string{"0s  512", "1s frank 512", "1s  1", "2s  0"}},
		{"combined.log", RecordingOptions{Key: "http_user_agent"}, "2026-03-29T00:59:59Z", []string{`0s curl/8.5 \"quoted\" 1`, "1s Mozilla/5.0 1", "1.5s curl/8.5 1", "2s  1"}},
	} {
		r, err := ReadAccessLog("testdata/"+tt.file, &tt.options)
		require.NoError(t, err, tt.file)
		assert.Equal(t, tt.want, listed(t, r), tt.file)
		assert.Equal(t, tt.begin, r.Begin.Format(time.RFC3339Nano), tt.file)
	}
}

func TestReadAccessLog_Paths(t *testing.T) {
	for _, tt := range []struct{ text, key, want string }{
		{`{"ts":1,"client_ip":"x","a":{"b":{"c":"deep"}}}`, "a.b.c", "deep"},
		{`{"ts":1,"client_ip":"x","a.b":{"c":"half"}}`, "a.b.c", "half"},
		{`{"ts":1,"client_ip":"x","a.b.c":"flat"}`, "a.b.c", "flat"},
		{`{"ts":1,"client_ip":"x","a":[{"b":["first","second"]},{"b":"other"}]}`, "a.b", "first"},
		{`{"ts":1,"client_ip":"x","a":12.50}`, "a", "12.50"},
		{`{"ts":1,"client_ip":"x","a":true}`, "a", "true"},
		{`{"ts":1,"client_ip":"x","a":null}`, "a", ""},
		{`{"ts":1,"client_ip":"x","\u0061":"\u00e9\n\ud83d\ude00"}`, "a", "é\n😀"},
		{`{"ts":1,"client_ip":"x","a":"one","a":"two"}`, "a", "two"},
		{`{"ts":1,"client_ip":"10.0.0.1:99"}`, "", "10.0.0.1"},
		{`{"ts":1,"client_ip":"[::1]:99"}`, "", "::1"},
		{`{"ts":1,"client_ip":"example.org:99"}`, "", "example.org:99"},
		{"\t" + `{ "ts" : 1 , "client_ip" : "-" , "x" : [ ] , "y" : { } }  `, "", ""},
	} {
		r, err := ReadAccessLog("some.log", from(tt.text, RecordingOptions{Key: tt.key}))
		require.NoError(t, err, tt.text)
		assert.Equal(t, []string{"1s " + tt.want + " 1"}, listed(t, r), tt.text)
	}
}

func TestReadAccessLog_Errors(t *testing.T) {
	const notJSON = "simulate: some.log:1: the line is not a JSON object, or not the whole of one"
	for text, want := range map[string]string{
		`{"ts":1,"client_ip":"x"`:                        notJSON,
		`{"ts":1,"client_ip":"x`:                         notJSON,
		`{"ts":1,"client_ip":"x"} {}`:                    notJSON,
		`{"ts":1,"client_ip":"x",}`:                      notJSON,
		`{"ts":1 "client_ip":"x"}`:                       notJSON,
		`{"ts":1,"client_ip":"\q"}`:                      notJSON,
		`{"ts":1,"client_ip":maybe}`:                     notJSON,
		`{"ts":01,"client_ip":"x"}`:                      notJSON,
		`{"x":` + strings.Repeat("[", 1000):              notJSON,
		`{"client_ip":"x"}`:                              "simulate: some.log:1: the line has no field for the time, which would be one of ts, start_time, msec, time_iso8601, time_local, @timestamp, timestamp, time",
		`{"ts":1,"msg":"started"}`:                       "simulate: some.log:1: the line has no field for the key, which would be one of request.client_ip, request.remote_ip, remote_addr, downstream_remote_address, client_ip, remote_ip",
		`{"ts":{"s":1},"client_ip":"x"}`:                 "simulate: some.log:1: the line has no field for the time, which would be one of ts, start_time, msec, time_iso8601, time_local, @timestamp, timestamp, time",
		`{"ts":null,"client_ip":"x"}`:                    "simulate: some.log:1: the time is missing",
		`{"ts":-1,"client_ip":"x"}`:                      `simulate: some.log:1: the time "-1" must be at least 0`,
		`{"ts":1,"client_ip":"` + "\xff\"}":              `simulate: some.log:1: the key "\xff" is not UTF-8`,
		`GET / HTTP/1.1`:                                 "simulate: some.log:1: the line is neither JSON nor in the combined log format: it has no time in brackets",
		`a - - [29/Mar/2026:01:59:59 +0100] "GET /`:      "simulate: some.log:1: a quotation mark is not closed in the line",
		`a - - [29/Mar/2026:01:59:59 +0100] "GET /"`:     "simulate: some.log:1: the line is not in the combined log format: it has no status",
		`a [29/Mar/2026:01:59:59 +0100] "GET /" 200`:     "simulate: some.log:1: the line is not in the combined log format: before the time there must be an address and two names",
		`a - - [29/Foo/2026:01:59:59 +0100] "GET /" 200`: `simulate: some.log:1: the time "29/Foo/2026:01:59:59 +0100" is not like 02/Jan/2006:15:04:05 -0700`,
	} {
		_, err := ReadAccessLog("some.log", from(text, RecordingOptions{}))
		assert.EqualError(t, err, want, text)
	}

	line := `{"ts":1,"client_ip":"x"}`
	for want, o := range map[string]RecordingOptions{
		`simulate: some.log:1: the line has no field "at"`:               {Time: "at"},
		`simulate: some.log: no line has the field "user" for the key`:   {Key: "user"},
		`simulate: some.log: no line has the field "price" for the cost`: {Cost: "price"},
	} {
		_, err := ReadAccessLog("some.log", from(line, o))
		assert.EqualError(t, err, want)
	}
	_, err := ReadAccessLog("testdata/combined.log", &RecordingOptions{Key: "user"})
	assert.ErrorContains(t, err, `combined.log:1: the combined log format has no field "user", it has remote_addr, remote_user`)
}

// FuzzReadCSV looks for texts that make reading panic, or that are read in two ways.
func FuzzReadCSV(f *testing.F) {
	for _, text := range []string{
		"time,key,cost\n1,a,2\n", "1;\"a;\"\"b\"\"\"\n1m;c", "2026-03-29T01:59:59.9+01:00,a\n1774742400.5,b", "\x1f\x8b\x08", "\ufeff1e9\r\n1e9",
	} {
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, skip bool) {
		fuzzRecording(t, ReadCSV, text, RecordingOptions{SkipBad: skip})
	})
}

// FuzzReadAccessLog does the same for logs.
func FuzzReadAccessLog(f *testing.F) {
	for _, text := range []string{
		`{"ts":1774742400.25,"request":{"client_ip":"a","headers":{"K":["b"]}}}` + "\n" + `{"ts":1774742400.25,"remote_addr":"a"}`,
		`a - - [29/Mar/2026:01:59:59 +0100] "GET /" 200 5 "-" "\"x\""` + "\n" + `v:1 a - b c [29/Mar/2026:01:59:59 +0100] "GET /" 200`,
	} {
		f.Add(text, "", true)
		f.Add(text, "request.headers.K", false)
	}
	f.Fuzz(func(t *testing.T, text, key string, skip bool) {
		fuzzRecording(t, ReadAccessLog, text, RecordingOptions{SkipBad: skip, Key: key})
	})
}

func fuzzRecording(t *testing.T, read func(string, *RecordingOptions) (*Recording, error), text string, o RecordingOptions) {
	t.Helper()
	r, err := read("f", from(text, o))
	if err != nil {
		return
	}
	count, last := int64(0), time.Duration(0)
	for q, err := range r.All() { // checks the order and the costs
		require.NoError(t, err)
		count, last = count+1, q.At
	}
	assert.Equal(t, r.Count, count)
	assert.Equal(t, r.Length, last)
}

// FuzzJSONFields compares the values that are found with those of encoding/json.
func FuzzJSONFields(f *testing.F) {
	for _, text := range []string{
		`{"a":{"b":"x"},"c":[1,2],"a.b":null}`, `{"a":[{"b":[["\u00e9"]]}]}`, `{"a":{"b":true,"b":-1.5e+3},"c":""}`, `{"a":{"a":{"b":1}}}`, `{}`,
	} {
		f.Add(text)
	}
	names := []string{"c", "a", "a.b"}
	f.Fuzz(func(t *testing.T, text string) {
		var fields jsonFields
		indexes := fields.add(names...)
		err := fields.parse([]byte(text))
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var object map[string]any
		if d.Decode(&object) != nil || object == nil || !json.Valid([]byte(text)) {
			return // what is not JSON may be read or not
		}
		if strings.Count(text, "{")+strings.Count(text, "[") > maxDepth || strings.ContainsRune(text, '\uFFFD') || !strings.Contains(text, `"`) {
			return
		}
		require.NoError(t, err)
		if strings.Contains(text, `a.`) || strings.Count(text, `"a"`) > 1 || strings.Count(text, `"b"`) > 1 || strings.Count(text, `"c"`) > 1 || strings.Contains(text, `\`) {
			return // one name twice: the last value counts, wherever it stands
		}
		for i, name := range names {
			var want any = object
			for part := range strings.SplitSeq(name, ".") {
				want = firstOf(want)
				inner, _ := want.(map[string]any)
				var there bool
				if want, there = inner[part]; !there {
					want = map[string]any(nil)
				}
			}
			want = firstOf(want)
			text, found := fields.first(indexes[i : i+1])
			switch want := want.(type) {
			case map[string]any, []any:
				assert.False(t, found, name)
			case nil:
				assert.True(t, found, name)
				assert.Empty(t, text)
			default:
				assert.True(t, found, name)
				assert.Equal(t, fmt.Sprint(want), text, name)
			}
		}
	})
}

// firstOf returns the first element of arrays.
func firstOf(v any) any {
	for {
		a, ok := v.([]any)
		if !ok || len(a) == 0 {
			return v
		}
		v = a[0]
	}
}

// manyLines is a Caddy log of that many lines.
type manyLines struct {
	lines, line int
	left        []byte
}

func (m *manyLines) Read(p []byte) (int, error) {
	if len(m.left) == 0 {
		if m.line == m.lines {
			return 0, io.EOF
		}
		m.left = fmt.Appendf(m.left[:0], `{"level":"info","ts":%d.%03d,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"203.0.113.7","remote_port":"53112","client_ip":"198.51.100.%d","proto":"HTTP/2.0","method":"GET","host":"shop.example","uri":"/orders?page=17","headers":{"User-Agent":["Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"],"Accept":["text/html,application/xhtml+xml"],"Accept-Encoding":["gzip, deflate, br"]},"tls":{"resumed":false,"version":772}},"bytes_read":0,"user_id":"","duration":0.004,"size":512,"status":200,"resp_headers":{"Server":["Caddy"],"Content-Type":["text/html; charset=utf-8"]}}`+"\n",
			1774742400+m.line/1000, (m.line*7919)%1000, m.line%250)
		m.line++
	}
	n := copy(p, m.left)
	m.left = m.left[n:]
	return n, nil
}

func BenchmarkReadAccessLog(b *testing.B) {
	lines := 100_000
	if testing.Short() {
		lines = 1000
	}
	for b.Loop() {
		r, err := ReadAccessLog("some.log", &RecordingOptions{Open: func(string) (io.ReadCloser, error) {
			return io.NopCloser(&manyLines{lines: lines}), nil
		}})
		require.NoError(b, err)
		require.Equal(b, int64(lines), r.Count)
	}
}
