package simulate

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/simulate/internal/render"
)

func expectationResult() *Result {
	return &Result{
		Total:   Counts{Requests: 100, Offered: 200, Admitted: 150, Queued: 20, Rejected: 2, Succeeded: 140, Failed: 10, Calls: 160, Retried: 10, TriedAgain: 100, Satisfied: 99},
		Latency: Quantiles{Count: 140, Mean: 5 * time.Millisecond, P50: 4 * time.Millisecond, P90: 9 * time.Millisecond, P99: 80 * time.Millisecond, P999: 90 * time.Millisecond, Max: time.Second},
		Wait:    Quantiles{Count: 150},
		Keys:    KeyResult{Count: 10, Jain: 0.95, Starved: 1},
		Most:    []Most{{Window: time.Second, Permits: 40, KeyPermits: 5}},
	}
}

func TestExpectation_Check(t *testing.T) {
	r := expectationResult()
	for text, reason := range map[string]string{
		"rejected <= 1%":        "",
		"rejected < 1%":         "rejected is 1% (2 of 200)",
		"rejected = 1%":         "",
		"rejected<3":            "",
		"  rejected   !=   2  ": "rejected is 2",
		"offered = 200":         "",
		"requests > 100":        "requests is 100",
		"admitted >= 75%":       "",
		"queued > 10 %":         "queued is 10% (20 of 200)",
		"failed <= 5%":          "",
		"succeeded = 70%":       "",
		"calls < 1e3":           "",
		"retried = 6.25%":       "",
		"tried_again <= 50%":    "",
		"satisfied > 99.5%":     "satisfied is 99% (99 of 100)",
		"unfinished = 0":        "",
		"latency_p99 < 100ms":   "",
		"latency_max <= 999ms":  "latency_max is 1s",
		"latency_mean = 5ms":    "",
		"latency_p999 > 1m":     "latency_p999 is 90ms",
		"wait_max = 0":          "",
		"wait_p50 < 1us":        "",
		"jain > 0.951":          "jain is 0.95",
		"starved = 0":           "starved is 1",
		"starved <= 10%":        "",
		"keys = 10":             "",
		"most <= 40":            "",
		"most(1s) < 40":         "most is 40",
		"most( 1000ms ) < 41":   "",
		"most_of_key <= 5":      "",
	} {
		e, err := ParseExpectation(text)
		require.NoError(t, err, text)
		err = e.Check(r)
		if reason == "" {
			assert.NoError(t, err, text)
			continue
		}
		unmet, ok := errors.AsType[*UnmetError](err)
		require.True(t, ok, "%s: %v", text, err)
		assert.Equal(t, reason, unmet.Reason)
		assert.Equal(t, "expected "+e.String()+", but "+reason, err.Error())
	}
	var zero Expectation
	assert.NoError(t, zero.Check(r))
	assert.Empty(t, zero.String())
}

func TestParseExpectation_Errors(t *testing.T) {
	for text, problem := range map[string]string{
		"":                     `write a metric, an operator`,
		"rejected":             `write a metric, an operator`,
		"< 1%":                 `there is no metric before the operator`,
		"rejected <":           `there is no value: write a count such as 10, or a percentage of the executions such as 1%`,
		"rejected == 1":        `there is no operator "==": write <, <=, >, >=, = or !=`,
		"rejected =< 1":        `there is no operator "=<"`,
		"p99 < 1s":             `there is no metric "p99"; there are requests, satisfied,`,
		"rejected < 10ms":      `rejected is a count: write a count such as 10, or a percentage`,
		"latency_p99 < 100":    `latency_p99 is a duration: write a duration such as 250ms`,
		"latency_p99 < 1%":     `latency_p99 is a duration`,
		"jain > 90%":           `jain is a number from 0 to 1: write a number such as 0.95`,
		"jain > 2":             `jain is never more than 1`,
		"offered > 1%":         `offered is a count: write a count such as 10`,
		"most < 1%":            `most is a count`,
		"most(1) < 1":          `the window of most must be a duration, such as most(1s)`,
		"most(1s < 1":          `the window of most must be a duration`,
		"offered(1s) < 1":      `offered is a whole: write offered without brackets`,
		"rejected < -1":        `rejected is never negative`,
		"rejected < 1,000":     `"1,000" is no value`,
		"rejected < NaN":       `"NaN" is no value`,
		"rejected < inf":       `"inf" is no value`,
		"rejected < 0x10":      `"0x10" is no value`,
		"rejected < 1%%":       `"1%%" is no value`,
		"rejected < 1e999":     `"1e999" is no value`,
		"rejected < 1 < 2":     `"1 < 2" is no value`,
		"<script> < 1":         `there is no metric before the operator`,
		"re\x1b[31mjected < 1": "there is no metric",
	} {
		_, err := ParseExpectation(text)
		require.Error(t, err, text)
		assert.Contains(t, err.Error(), "simulate: expectation ", text)
		assert.Contains(t, err.Error(), problem, text)
		assert.NotContains(t, err.Error(), "\x1b")
	}
}

// What was not measured must not pass for good.
func TestExpectation_NothingMeasured(t *testing.T) {
	for _, text := range []string{"rejected < 1%", "rejected >= 0%", "latency_p99 < 1s", "wait_max = 0", "jain >= 0", "starved < 1%", "retried < 1%"} {
		e, err := ParseExpectation(text)
		require.NoError(t, err)
		_, ok := errors.AsType[*UnmetError](e.Check(&Result{}))
		assert.True(t, ok, text)
	}
	for _, text := range []string{"rejected = 0", "keys < 1"} {
		e, err := ParseExpectation(text)
		require.NoError(t, err)
		assert.NoError(t, e.Check(&Result{}), text)
	}
}

func TestExpectation_Windows(t *testing.T) {
	r := &Result{Most: []Most{{Window: time.Second, Permits: 4}, {Window: time.Minute, Permits: 60}}}
	for text, problem := range map[string]string{
		"most < 5":      "write which window is meant: most(1s) or most(1m)",
		"most(2s) < 5":  "the scenario has no window of 2s; it has most(1s) and most(1m)",
		"most(1s) < 5":  "",
		"most(1m) < 60": "most is 60",
	} {
		e, err := ParseExpectation(text)
		require.NoError(t, err)
		err = e.Check(r)
		if problem == "" {
			assert.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, problem)
	}
	e, err := ParseExpectation("most < 5")
	require.NoError(t, err)
	err = e.Check(&Result{})
	require.ErrorContains(t, err, "the scenario has no windows")
	_, unmet := errors.AsType[*UnmetError](err)
	assert.False(t, unmet)
}

func TestExpectation_CheckComparison(t *testing.T) {
	before, after := overload(600), overload(450)
	c := Compare(before, after)
	for text, problem := range map[string]string{
		"newly_refused = 0":       fmt.Sprintf("newly_refused is %s", render.Count(c.NewlyRefused)),
		"newly_refused < 50%":     "",
		"no_longer_refused >= 0%": "",
		"rejected < 1%":           "rejected is ",
	} {
		e, err := ParseExpectation(text)
		require.NoError(t, err)
		err = e.CheckComparison(c)
		if problem == "" {
			assert.NoError(t, err, text)
		} else {
			assert.ErrorContains(t, err, problem, text)
		}
		if e.NeedsComparison() {
			assert.ErrorContains(t, e.Check(after), "needs a comparison of two results")
		}
	}
	after.open, after.closed = false, true
	e, err := ParseExpectation("newly_refused = 0")
	require.NoError(t, err)
	err = e.CheckComparison(Compare(before, after))
	require.ErrorContains(t, err, "closed load")
	_, unmet := errors.AsType[*UnmetError](err)
	assert.False(t, unmet)
}

// The documentation has every metric.
func TestParseExpectation_Documented(t *testing.T) {
	source, err := os.ReadFile("expect.go")
	require.NoError(t, err)
	doc, _, _ := strings.Cut(string(source), "\nfunc ParseExpectation")
	for _, m := range metrics {
		name, quantile := strings.CutPrefix(m.name, "wait_")
		if !quantile {
			name, quantile = strings.CutPrefix(m.name, "service_")
		}
		if quantile {
			assert.Contains(t, doc, "latency_"+name)
			continue
		}
		assert.Regexp(t, `\b`+m.name+`\b`, doc)
	}
}

func FuzzParseExpectation(f *testing.F) {
	for _, text := range []string{"rejected < 1%", "latency_p99 <= 250ms", "most(1s) = 3", "jain>0.9", "x", "most(", "<"} {
		f.Add(text)
	}
	r := expectationResult()
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseExpectation(text)
		if err != nil {
			return
		}
		again, err := ParseExpectation(e.String())
		if err != nil || again != e {
			t.Errorf("%q is read as %q, which is read as %q: %v", text, e, again, err)
		}
		_ = e.Check(r)
	})
}
