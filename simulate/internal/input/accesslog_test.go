package input

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAccessLog(t *testing.T) {
	for _, tt := range []struct {
		file    string
		options Options
		begin   string
		want    []string
	}{
		{"caddy.log", Options{}, "2026-03-29T00:00:00.25Z", []string{"0s 198.51.100.4 1", "1.25s 198.51.100.4 1", "1.5s 198.51.100.9 1"}},
		{"caddy.log", Options{Key: "request.headers.X-Api-Key", Cost: "size"}, "2026-03-29T00:00:00.25Z", []string{"0s alice 512", "1.25s alice 512", "1.5s  512"}},
		{"nginx.log", Options{Cost: "permits"}, "2026-03-29T00:00:00.25Z", []string{"0s 198.51.100.4 2", "750ms 2001:db8::7 1"}},
		{"envoy.log", Options{}, "2026-03-29T00:59:59.9Z", []string{"0s 198.51.100.4 1", "200ms 2001:db8::7 1"}},
		{"envoy.log", Options{Key: "x-forwarded-for"}, "2026-03-29T00:59:59.9Z", []string{"0s  1", "200ms  1"}},
		{"combined.log", Options{}, "2026-03-29T00:59:59Z", []string{"0s 198.51.100.4 1", "1s 198.51.100.9 1", "1.5s 198.51.100.4 1", "2s 2001:db8::7 1"}},
		{"combined.log", Options{Key: "remote_user", Cost: "body_bytes_sent"}, "2026-03-29T00:59:59Z", []string{"0s  512", "1s frank 512", "1.5s  1", "2s  0"}},
		{"combined.log", Options{Key: "http_user_agent"}, "2026-03-29T00:59:59Z", []string{`0s curl/8.5 \"quoted\" 1`, "1s Mozilla/5.0 1", "1.5s curl/8.5 1", "2s  1"}},
	} {
		r, err := File{Name: "testdata/" + tt.file, Format: AccessLog, Options: tt.options}.Read()
		require.NoError(t, err, tt.file)
		assert.Equal(t, tt.want, listed(t, r), tt.file)
		assert.Equal(t, tt.begin, r.Begin.Format(time.RFC3339Nano), tt.file)
	}
}

func TestAccessLog_Paths(t *testing.T) {
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
		r, err := from("some.log", AccessLog, tt.text, Options{Key: tt.key})
		require.NoError(t, err, tt.text)
		assert.Equal(t, []string{"1s " + tt.want + " 1"}, listed(t, r), tt.text)
	}
}

func TestAccessLog_Errors(t *testing.T) {
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
		`{"ts":1,"client_ip":"` + "\xff\"}":              `simulate: some.log:1: the line is not UTF-8`,
		`GET / HTTP/1.1`:                                 "simulate: some.log:1: the line is neither JSON nor in the combined log format: it has no time in brackets",
		`a - - [29/Mar/2026:01:59:59 +0100] "GET /`:      "simulate: some.log:1: a quotation mark is not closed in the line",
		`a - - [29/Mar/2026:01:59:59 +0100] "GET /"`:     "simulate: some.log:1: the line is not in the combined log format: it has no status",
		`a [29/Mar/2026:01:59:59 +0100] "GET /" 200`:     "simulate: some.log:1: the line is not in the combined log format: before the time there must be an address and two names",
		`a - - [29/Foo/2026:01:59:59 +0100] "GET /" 200`: `simulate: some.log:1: the time "29/Foo/2026:01:59:59 +0100" is not like 02/Jan/2006:15:04:05 -0700`,
	} {
		_, err := from("some.log", AccessLog, text, Options{})
		assert.EqualError(t, err, want, text)
	}

	line := `{"ts":1,"client_ip":"x"}`
	for want, o := range map[string]Options{
		`simulate: some.log:1: the line has no field "at"`:               {Time: "at"},
		`simulate: some.log: no line has the field "user" for the key`:   {Key: "user"},
		`simulate: some.log: no line has the field "price" for the cost`: {Cost: "price"},
	} {
		_, err := from("some.log", AccessLog, line, o)
		assert.EqualError(t, err, want)
	}
	_, err := File{Name: "testdata/combined.log", Format: AccessLog, Options: Options{Key: "user"}}.Read()
	assert.ErrorContains(t, err, `combined.log:1: the combined log format has no field "user", it has remote_addr, remote_user`)
}

// FuzzCSV looks for texts that make reading panic, or that are read in two ways.
func FuzzCSV(f *testing.F) {
	for _, text := range []string{
		"time,key,cost\n1,a,2\n", "1;\"a;\"\"b\"\"\"\n1m;c", "2026-03-29T01:59:59.9+01:00,a\n1774742400.5,b", "\x1f\x8b\x08", "\ufeff1e9\r\n1e9",
	} {
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, skip bool) {
		fuzzRecording(t, CSV, text, Options{SkipBad: skip})
	})
}

// FuzzAccessLog does the same for logs.
func FuzzAccessLog(f *testing.F) {
	for _, text := range []string{
		`{"ts":1774742400.25,"request":{"client_ip":"a","headers":{"K":["b"]}}}` + "\n" + `{"ts":1774742400.25,"remote_addr":"a"}`,
		`a - - [29/Mar/2026:01:59:59 +0100] "GET /" 200 5 "-" "\"x\""` + "\n" + `v:1 a - b c [29/Mar/2026:01:59:59 +0100] "GET /" 200`,
	} {
		f.Add(text, "", true)
		f.Add(text, "request.headers.K", false)
	}
	f.Fuzz(func(t *testing.T, text, key string, skip bool) {
		fuzzRecording(t, AccessLog, text, Options{SkipBad: skip, Key: key})
	})
}

func fuzzRecording(t *testing.T, format func(*Options) Parser, text string, o Options) {
	t.Helper()
	r, err := from("f", format, text, o)
	if err != nil {
		return
	}
	count, last := int64(0), time.Duration(0)
	for q, err := range r.Requests {
		require.NoError(t, err)
		require.GreaterOrEqual(t, q.At, last)
		require.GreaterOrEqual(t, q.Cost, 0)
		count, last = count+1, q.At
	}
	assert.Equal(t, r.Count, count)
	assert.Equal(t, r.Length, last)
}
