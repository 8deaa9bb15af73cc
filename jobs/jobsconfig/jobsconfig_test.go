package jobsconfig

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const configYAML = `# limits of what sends mail
limiters:
  - semaphore: smtp
    max_count: 10
  - fixed_window: api
    limit: 5000
    interval: 1h
  - sliding_window: api
    limit: 4
    interval: 1h0m0s
    buckets: 3
  - dynamic_window: newsletter
    interval: 1h
    buckets: 60
    capacity: 10000
    min_limit: 1000
    max_limit: 5000
    max_keys: 7
  - dynamic_window: other
    interval: 1500ms
    capacity: 4
throttles:
  - kinds: [newsletter_*, digest]
    strict: true
    cancel: true
    min_delay: 1m30s
    limits:
      - semaphore: smtp
      - dynamic_window: newsletter
        key: "{tenant}"
  - kinds: ["*"]
    limits:
      - {mutex: batch, key: "{metadata:queue}", owner: "{metadata:batch}", mode: acquire, deadline: -1}
      - {mutex: other, owner: "x", mode: acquire, deadline: 2h}
      - {mutex: third, owner: "x", mode: release}
`

const configJSON = `{
  "limiters": [
    {"semaphore": "smtp", "max_count": 10},
    {"fixed_window": "api", "limit": 5000, "interval": "1h"},
    {"sliding_window": "api", "limit": 4, "interval": "60m", "buckets": 3},
    {"dynamic_window": "newsletter", "interval": "1h", "buckets": 60, "capacity": 10000, "min_limit": 1000, "max_limit": 5000,
      "max_keys": 7},
    {"dynamic_window": "other", "interval": "1.5s", "capacity": 4}
  ],
  "throttles": [
    {"kinds": ["newsletter_*", "digest"], "strict": true, "cancel": true, "min_delay": "90s", "limits": [
      {"semaphore": "smtp"}, {"dynamic_window": "newsletter", "key": "{tenant}"}
    ]},
    {"kinds": ["*"], "limits": [
      {"mutex": "batch", "key": "{metadata:queue}", "owner": "{metadata:batch}", "mode": "acquire", "deadline": -1},
      {"mutex": "other", "owner": "x", "mode": "acquire", "deadline": "2h"},
      {"mutex": "third", "owner": "x", "mode": "release"}
    ]}
  ]
}`

func TestParse(t *testing.T) {
	want := jobs.Config{
		Limiters: []jobs.Definition{
			{Semaphore: "smtp", MaxCount: 10},
			{FixedWindow: "api", Limit: 5000, Interval: time.Hour},
			{SlidingWindow: "api", Limit: 4, Interval: time.Hour, Buckets: 3},
			{DynamicWindow: "newsletter", Interval: time.Hour, Buckets: 60, Capacity: 10_000, MinLimit: 1000, MaxLimit: 5000, MaxKeys: 7},
			{DynamicWindow: "other", Interval: 1500 * time.Millisecond, Capacity: 4},
		},
		Throttles: []jobs.KindThrottle{
			{Kinds: []string{"newsletter_*", "digest"}, Throttle: jobs.Throttle{Strict: true, Cancel: true, MinDelay: 90 * time.Second,
				Limits: []jobs.Limit{{Semaphore: "smtp"}, {DynamicWindow: "newsletter", Key: "{tenant}"}}}},
			{Kinds: []string{"*"}, Throttle: jobs.Throttle{Limits: []jobs.Limit{
				{Mutex: "batch", Key: "{metadata:queue}", Owner: "{metadata:batch}", Mode: jobs.Acquire, Deadline: -1},
				{Mutex: "other", Owner: "x", Mode: jobs.Acquire, Deadline: 2 * time.Hour},
				{Mutex: "third", Owner: "x", Mode: jobs.Release},
			}}},
		},
	}
	for _, text := range []string{configYAML, configJSON} {
		got, err := Parse([]byte(text))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestParse_Empty(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\n", "{}", "null", "---\n", "limiters:\nthrottles:\n", "limiters: []", "\xef\xbb\xbf{}", "...\n"} {
		got, err := Parse([]byte(text))
		assert.NoError(t, err, "%q", text)
		assert.Empty(t, got.Limiters, "%q", text)
		assert.Empty(t, got.Throttles, "%q", text)
	}
}

func TestParse_NamesTheLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"limiter: []\n", "line 1: field limiter not found"},
		{"limiters:\n  - semaphore: a\n    max_count: 1\n    maxcount: 1\n", "line 4: field maxcount not found"},
		{"limiters:\n  - Semaphore: a\n    max_count: 1\n", "line 2: field Semaphore not found"},
		{"limiters:\n  - mutex: a\n", "line 2: field mutex not found"},
		{"throttles:\n  - kinds: [a]\n    throttle: {strict: true}\n", "line 3: field throttle not found"},
		{"throttles:\n  - kinds: [a]\n    limits:\n      - mutex: a\n        keys: b\n", "line 5: field keys not found"},
		{"limiters:\n  - semaphore: a\n    semaphore: b\n", `line 3: mapping key "semaphore" already defined`},
		{"limiters:\n  - semaphore: a\n    max_count: 2.5\n", "line 3: cannot construct"},
		{"limiters:\n  - semaphore: a\n    max_count: \"2\"\n", "line 3: cannot construct"},
		{"limiters:\n  - semaphore: a\n    max_count: 99999999999999999999\n", "line 3: cannot construct"},
		{"limiters:\n  - fixed_window: a\n    limit: 1\n    interval: 60\n", "line 4: interval must be a duration with its unit, such as 30s, got 60"},
		{"throttles:\n  - kinds: [a]\n    min_delay: 0.5\n", "line 3: min_delay must be a duration with its unit, such as 30s, got 0.5"},
		{"limiters:\n  - fixed_window: a\n    limit: 1\n    interval: 1d\n", "line 4: cannot construct"},
		{"limiters:\n  - fixed_window: a\n    limit: 1\n    interval: 9999999h\n", "line 4: cannot construct"},
		{"throttles:\n  - kinds: [a]\n    cancel: true\n    limits:\n", "line 4: limits has no value"},
		{"limiters: {}\n", "line 1: cannot construct"},
		{"limiters:\n  - []\n", "line 2: cannot construct"},
		{"[]\n", "line 1: cannot construct"},
		{"text\n", "line 1: cannot construct"},
		{"throttles:\n  - kinds: a\n", "line 2: cannot construct"},
		{"throttles:\n  - kinds: [a]\n    limits: [{mutex: m, key: {x}}]\n", "line 3: cannot construct"},
		{"throttles:\n  - kinds: [a]\n    cancel: maybe\n", "line 3: cannot construct"},
		{"throttles:\n  - kinds: [a]\n    limits: [{mutex: m, owner: o, mode: hold}]\n", `line 3: mode must be one of acquire_and_release, acquire, release, got "hold"`},
		{"throttles:\n  - kinds: [a]\n    limits: [{mutex: m, owner: o, mode: acquire, deadline: -2}]\n", "line 3: deadline must be a duration with its unit, such as 30s, got -2"},
		{"limiters:\n\t- semaphore: a\n", "line 2: found character that cannot start any token"},
		{"limiters: [\n", "line 2: did not find"},
		{"limiters: *nowhere\n", "line 1: unknown anchor"},
		{"limiters: &a [*a]\n", "line 1: "},
		{"a: &a [x,x]\nb: [*a,*a]\n", "line 1: field a not found"},
		// A list's element that has no value would be left out, and a job would run without the limit.
		{"throttles:\n  - kinds: [a]\n    limits:\n      -\n", "line 4: an element of a list has no value"},
		{"throttles:\n  - kinds: [a]\n    limits: [{mutex: m}, null]\n", "line 3: an element of a list has no value"},
		{"throttles:\n  - kinds: [a, ~]\n", "line 2: an element of a list has no value"},
		{"limiters:\n  - # semaphore: a\n", "line 2: an element of a list has no value"},
		{"---\n{}\n---\n{}\n", "there is more than one document"},
		{`{"limiters": []} {}`, "line 1: did not find expected <document start>"},
		{`{"limiters": [}`, "line 1: did not find"},
	} {
		got, err := Parse([]byte(c.text))
		require.ErrorIs(t, err, weir.ErrInvalidOptions, "%q", c.text)
		assert.ErrorContains(t, err, c.want, "%q", c.text)
		assert.Equal(t, 1, strings.Count(err.Error(), "jobs: "), "%v", err)
		assert.Zero(t, got)
	}
}

func TestParse_NamesTheField(t *testing.T) {
	const none = " must have exactly one of semaphore, fixed_window, sliding_window, dynamic_window, got "
	for _, c := range []struct{ text, want string }{
		{"limiters: [{}]", "limiters[0]" + none + "0"},
		{"limiters: [{max_count: 1}]", "limiters[0]" + none + "0"},
		{"limiters: [{semaphore: a, fixed_window: a}]", "limiters[0]" + none + "2"},
		{"limiters: [{semaphore: a, max_count: 1}, {semaphore: b}]", "limiters[1].max_count must be 1 to"},
		{"limiters: [{semaphore: a, max_count: 1, limit: 2}]", "limiters[0] must have only the options of a semaphore"},
		{"limiters: [{fixed_window: a, limit: 1, interval: 1s, buckets: 1}]", "limiters[0] must have only the options of a fixed window"},
		{"limiters: [{sliding_window: a, limit: 1, interval: 1s, buckets: 1, capacity: 5}]", "must have only the options of a sliding window"},
		{"limiters: [{dynamic_window: a, capacity: 1, interval: 1s, max_count: 5}]", "must have only the options of a dynamic window"},
		{"limiters: [{semaphore: a, max_count: 1}, {semaphore: a, max_count: 1}]", `limiters[1] must not set this semaphore a second time, got "a"`},
		{"limiters: [&a {semaphore: a, max_count: 1}, *a]", `limiters[1] must not set this semaphore a second time, got "a"`},
		{`limiters: [{semaphore: "a\0b", max_count: 1}]`, `limiters[0].semaphore must be valid UTF-8 without control characters, got "a\x00b"`},
		{"limiters: [{semaphore: " + strings.Repeat("n", 101) + ", max_count: 1}]", "limiters[0].semaphore must have 1 to 100 bytes"},
		{"limiters: [{sliding_window: a}]", "limiters[0].limit must be 1 to 1000000000, got 0; limiters[0].interval must be 1s to"},
		{"throttles: [{}]", "throttles[0].kinds must not be empty"},
		{"throttles: [{kinds: []}]", "throttles[0].kinds must not be empty"},
		{"throttles: [{kinds: ['']}]", `throttles[0].kinds[0] must not be empty, and have * at its end only, got ""`},
		{"throttles: [{kinds: ['a*b']}]", `throttles[0].kinds[0] must not be empty, and have * at its end only, got "a*b"`},
		{"throttles: [{kinds: ['**']}]", `throttles[0].kinds[0] must not be empty, and have * at its end only, got "**"`},
		{"throttles: [{kinds: [a]}]", "throttles[0].limits must not be empty without strict, cancel or min_delay"},
		{"throttles: [{kinds: [a], limits: []}]", "throttles[0].limits must not be empty without strict, cancel or min_delay"},
		{"throttles: [{kinds: [a], limits: [{}]}]", "throttles[0].limits[0] must have exactly one of mutex, semaphore"},
		{"throttles: [{kinds: [a], min_delay: -1s}]", "throttles[0].min_delay must be 0 to 87600h0m0s, got -1s"},
		{"throttles: [{kinds: [a], limits: [{mutex: m, key: '{'}]}]", `throttles[0].limits[0].key must have braces around the name of a field, and no others, got "{"`},
	} {
		_, err := Parse([]byte(c.text))
		require.ErrorIs(t, err, weir.ErrInvalidOptions, "%q", c.text)
		assert.ErrorContains(t, err, c.want, "%q", c.text)
		assert.Equal(t, 1, strings.Count(err.Error(), "jobs: "), "%v", err)
	}
	_, err := Parse([]byte("limiters: [{semaphore: a}, {}]\nthrottles: [{kinds: [a], limits: [{mutex: m, key: '}'}]}, {}]"))
	for _, want := range []string{"limiters[0]", "limiters[1]", "throttles[0]", "throttles[1]"} {
		assert.ErrorContains(t, err, want, "all at once")
	}
}

// What is hostile ends soon, and in an error.
func TestParse_Hostile(t *testing.T) {
	bomb := "limiters:\n- &a0 {semaphore: a, max_count: 1}\n"
	for name := range strings.SplitSeq("bcdefghij", "") {
		bomb += "- &" + name + " [" + strings.TrimSuffix(strings.Repeat("*"+string(name[0]-1)+",", 9), ",") + "]\n"
	}
	bomb = strings.Replace(bomb, "&a0", "&a", 1)
	for name, text := range map[string]string{
		"deep lists":    strings.Repeat("[", 11_000),
		"deep mappings": strings.Repeat("{a: ", 11_000),
		"bomb":          bomb,
		"UTF-16":        "\xff\xfe{\x00",
		"zeros":         strings.Repeat("\x00", 1000),
		"not UTF-8":     "limiters: [{semaphore: \"\xff\", max_count: 1}]",
		"long scalar":   "limiters: [{semaphore: " + strings.Repeat("x", 1<<16) + ", max_count: 1}]",
		"many":          "limiters:\n" + strings.Repeat("- {}\n", 500),
	} {
		_, err := Parse([]byte(text))
		assert.ErrorIs(t, err, weir.ErrInvalidOptions, name)
	}
}

// What Parse accepts can be set and used, and nothing makes it panic.
func FuzzParse(f *testing.F) {
	f.Add([]byte(configYAML))
	f.Add([]byte(configJSON))
	f.Add([]byte("limiters: [&a {semaphore: a, max_count: 1}, *a]"))
	f.Add([]byte("throttles: [{kinds: [a], limits: [{mutex: m, <<: {key: '{x}'}}]}]"))
	f.Add([]byte("limiters:\n  - &x [*x]\n---\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text)
		if err != nil {
			require.ErrorIs(t, err, weir.ErrInvalidOptions)
			return
		}
		require.NoError(t, c.Validate())
	})
}
