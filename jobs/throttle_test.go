package jobs

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestMode_Text(t *testing.T) {
	for mode, text := range map[Mode]string{AcquireAndRelease: "acquire_and_release", Acquire: "acquire", Release: "release"} {
		assert.Equal(t, text, mode.String())
		got, err := mode.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
		back := Mode(9)
		require.NoError(t, back.UnmarshalText([]byte(text)))
		assert.Equal(t, mode, back)
	}
	for _, mode := range []Mode{3, math.MaxUint8} {
		assert.Equal(t, fmt.Sprintf("Mode(%d)", mode), mode.String())
		_, err := mode.MarshalText()
		assert.ErrorContains(t, err, fmt.Sprintf("Mode must be one of acquire_and_release, acquire, release, got \"Mode(%d)\"", mode))
		assert.ErrorIs(t, err, weir.ErrInvalidOptions)
	}
	for _, text := range []string{"", "Acquire", "acquire ", "2"} {
		mode := Release
		err := mode.UnmarshalText([]byte(text))
		assert.ErrorIs(t, err, weir.ErrInvalidOptions, "%q", text)
		assert.ErrorContains(t, err, fmt.Sprintf("Mode must be one of acquire_and_release, acquire, release, got %q", text))
		assert.Equal(t, Release, mode, "left alone")
	}
}

func TestRef_String(t *testing.T) {
	assert.Equal(t, `semaphore "newsletter"`, Ref{Type: Semaphore, Name: "newsletter"}.String())
	assert.Equal(t, `dynamic window "newsletter" key "a\n"`, Ref{Type: DynamicWindow, Name: "newsletter", Key: "a\n"}.String())
}

func TestThrottle_Check(t *testing.T) {
	assert.Equal(t, &parsedThrottle{}, weir.Must(Declare(Throttle{})).parsed)
	p := weir.Must(Declare(Throttle{
		Strict: true, Cancel: true, MinDelay: time.Hour,
		Limits: []Limit{
			{Mutex: "a"},
			{Mutex: "a", Key: "constant"},
			{Semaphore: "a", Key: "{x}", Owner: "{y}"},
			{Mutex: "b", Owner: "o", Mode: Acquire},
			{Mutex: "b", Key: "1", Owner: "o", Mode: Acquire, Deadline: time.Second},
			{Mutex: "b", Key: "2", Owner: "o", Mode: Acquire, Deadline: -1},
			{Mutex: "b", Key: "3", Owner: "o", Mode: Acquire, Deadline: maxDelay},
			{Mutex: "c", Owner: "o", Mode: Release},
			{FixedWindow: "a"},
			{SlidingWindow: "a", Key: "{x}"},
			{DynamicWindow: "a", Key: "{x}"},
			{Mutex: strings.Repeat("n", maxName)},
		},
	})).parsed
	assert.True(t, p.strict)
	assert.True(t, p.cancel)
	assert.Equal(t, time.Hour, p.minDelay)
	require.Len(t, p.limits, 12)
	for i, want := range []Ref{
		{Type: Mutex, Name: "a"}, {Type: Mutex, Name: "a"}, {Type: Semaphore, Name: "a"}, {Type: Mutex, Name: "b"}, {Type: Mutex, Name: "b"},
		{Type: Mutex, Name: "b"}, {Type: Mutex, Name: "b"}, {Type: Mutex, Name: "c"}, {Type: FixedWindow, Name: "a"},
		{Type: SlidingWindow, Name: "a"}, {Type: DynamicWindow, Name: "a"},
	} {
		assert.Equal(t, want, p.limits[i].ref, "%d", i)
	}
	for i, want := range []time.Duration{0, 0, 0, defaultDeadline, time.Second, 0, maxDelay, 0} {
		assert.Equal(t, want, p.limits[i].deadline, "%d", i)
	}
	assert.Equal(t, Acquire, p.limits[3].mode)
	assert.Equal(t, Release, p.limits[7].mode)
}

func TestThrottle_NamesWhatIsWrong(t *testing.T) {
	const none = "must have exactly one of Mutex, Semaphore, FixedWindow, SlidingWindow, DynamicWindow, got "
	for _, c := range []struct {
		limit Limit
		want  []string
	}{
		{Limit{}, []string{none + "0"}},
		{Limit{Key: "{x}"}, []string{none + "0"}},
		{Limit{Mutex: "a", Semaphore: "a"}, []string{none + "2"}},
		{Limit{Mutex: "a", Semaphore: "a", FixedWindow: "a", SlidingWindow: "a", DynamicWindow: "a"}, []string{none + "5"}},
		{Limit{Mutex: strings.Repeat("n", maxName+1)}, []string{"Mutex must have 1 to 100 bytes"}},
		{Limit{Mutex: "a\x00"}, []string{`Mutex must be valid UTF-8 without control characters, got "a\x00"`}},
		{Limit{Mutex: "\xff"}, []string{"must be valid UTF-8 without control characters"}},
		{Limit{Mutex: "a", Key: "{"}, []string{`Key must have braces around the name of a field, and no others, got "{"`}},
		{Limit{Mutex: "a", Key: "{", Owner: "}"}, []string{"Key must have braces", "Owner must have braces"}},
		{Limit{DynamicWindow: "a"}, []string{"Key must not be empty: a dynamic window has a window for each key"}},
		{Limit{FixedWindow: "a", Owner: "o"}, []string{"must not have Owner, Mode or Deadline, which are for mutexes and semaphores"}},
		{Limit{SlidingWindow: "a", Mode: Release}, []string{"must not have Owner, Mode or Deadline, which are for mutexes and semaphores"}},
		{Limit{DynamicWindow: "a", Key: "k", Deadline: -1}, []string{"must not have Owner, Mode or Deadline, which are for mutexes and semaphores"}},
		{Limit{Mutex: "a", Mode: 3}, []string{"Mode must be acquire_and_release, acquire or release, got Mode(3)"}},
		{Limit{Mutex: "a", Mode: Acquire}, []string{"Owner must not be empty with Mode acquire: it says whose slot it is"}},
		{Limit{Mutex: "a", Mode: Release}, []string{"Owner must not be empty with Mode release: it says whose slot it is"}},
		{Limit{Mutex: "a", Deadline: time.Hour}, []string{"Deadline must be 0 unless Mode is acquire, got 1h0m0s"}},
		{Limit{Mutex: "a", Deadline: -1}, []string{"Deadline must be 0 unless Mode is acquire, got -1ns"}},
		{Limit{Mutex: "a", Owner: "o", Mode: Release, Deadline: time.Hour}, []string{"Deadline must be 0"}},
		{Limit{Mutex: "a", Owner: "o", Mode: Acquire, Deadline: -2}, []string{"Deadline must be -1, or 0 to 87600h0m0s, got -2ns"}},
		{Limit{Mutex: "a", Owner: "o", Mode: Acquire, Deadline: math.MaxInt64}, []string{"Deadline must be -1, or 0 to 87600h0m0s, got 2562047h47m16.854775807s"}},
	} {
		_, err := Declare(Throttle{Limits: []Limit{{Mutex: "right"}, c.limit}})
		require.ErrorIs(t, err, weir.ErrInvalidOptions, "%+v", c.limit)
		for _, want := range c.want {
			assert.ErrorContains(t, err, want, "%+v", c.limit)
		}
		assert.Equal(t, len(c.want), strings.Count(err.Error(), "Limits[1]"), "%v", err)
		assert.NotContains(t, err.Error(), "Limits[0]")
	}
	for _, c := range []struct {
		throttle Throttle
		want     string
	}{
		{Throttle{MinDelay: -1}, "MinDelay must be 0 to 87600h0m0s, got -1ns"},
		{Throttle{MinDelay: maxDelay + 1}, "MinDelay must be 0 to 87600h0m0s, got 87600h0m0.000000001s"},
		{Throttle{Limits: make([]Limit, maxLimits+1)}, "Limits must have at most 20 elements, got 21"},
	} {
		_, err := Declare(c.throttle)
		assert.ErrorIs(t, err, weir.ErrInvalidOptions)
		assert.ErrorContains(t, err, c.want)
	}
	_, err := Declare(Throttle{MinDelay: -5, Limits: []Limit{{}, {Mutex: "a", Key: "}"}}})
	for _, want := range []string{"MinDelay must", "Limits[0] must", "Limits[1].Key must"} {
		assert.ErrorContains(t, err, want, "all at once")
	}
}

// The text of an error stays readable, whatever is wrong.
func TestThrottle_BoundsErrors(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, l := range []Limit{{Mutex: long}, {Mutex: "a", Key: long}, {Mutex: "a", Key: long + "{"}, {Mutex: "a", Owner: "{" + long + ".}"}} {
		_, err := Declare(Throttle{Limits: []Limit{l}})
		require.ErrorIs(t, err, weir.ErrInvalidOptions)
		assert.Less(t, len(err.Error()), 1000)
	}
}

func TestDeclare_Errors(t *testing.T) {
	wrong := Throttle{Limits: []Limit{{}}}
	d, err := Declare(wrong)
	assert.Nil(t, d)
	assert.ErrorIs(t, err, weir.ErrInvalidOptions)
	assert.PanicsWithError(t, err.Error(), func() { weir.Must(Declare(wrong)) })
	for _, other := range []Limit{{Mutex: "m"}, {Mutex: "m", Owner: "{b}", Mode: Acquire}, {Mutex: "m", Owner: "{a}", Mode: Release},
		{Mutex: "m", Owner: "{a}", Mode: Acquire, Deadline: 1}} {
		_, err = Declare(Throttle{Limits: []Limit{{Mutex: "m", Owner: "{a}", Mode: Acquire}, other}})
		assert.ErrorContains(t, err, "Limits[1] must not name the limiter and the key of Limits[0] with another Owner, Mode or Deadline")
	}
	for _, other := range []Limit{{Mutex: "m", Owner: "{a}"}, {Mutex: "m", Key: "{b}"}, {Semaphore: "m"}} {
		_, err = Declare(Throttle{Limits: []Limit{{Mutex: "m", Owner: "{a}"}, other}})
		assert.NoError(t, err)
	}
	d, err = Declare(Throttle{})
	require.NoError(t, err)
	assert.Len(t, d.Plugins(), 1)
}

func TestKindThrottles_Of(t *testing.T) {
	c := Config{Throttles: []KindThrottle{
		{Kinds: []string{"mail"}, Throttle: Throttle{MinDelay: 1}},
		{Kinds: []string{"mail*", "mail_a", "m*"}, Throttle: Throttle{MinDelay: 2}},
		{Kinds: []string{"*"}, Throttle: Throttle{MinDelay: 3}},
		{Kinds: []string{"other", "mail_b"}, Throttle: Throttle{MinDelay: 4}},
	}}
	_, rules, err := c.parse()
	require.NoError(t, err)
	for kind, want := range map[string][]time.Duration{
		"mail": {1, 2, 3}, "mail_a": {2, 3}, "mail_b": {2, 3, 4}, "mailx": {2, 3}, "m": {2, 3}, "Mail": {3}, "": {3}, "other": {3, 4}, "mail*": {2, 3}, "amail": {3},
	} {
		var got []time.Duration
		for _, p := range rules.of(kind) {
			got = append(got, p.minDelay)
		}
		assert.Equal(t, want, got, "%q", kind)
	}
	assert.Empty(t, kindThrottles(nil).of("mail"))
}
