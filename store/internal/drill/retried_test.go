package drill

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/realtime"
)

func TestRetried(t *testing.T) {
	const been = "WEIR_DRILL_BEEN_HERE"
	if os.Getenv(been) == "" { // else this is the process that Retried has started
		t.Setenv(been, filepath.Join(t.TempDir(), "here"))
	}
	t.Run("fails only once", func(t *testing.T) {
		again := retry(t, 1, func() {
			if os.Getenv(childVariable) == "" {
				t.Fatal("it runs in the process of the others")
			}
			if _, err := os.Stat(os.Getenv(been)); err != nil {
				require.NoError(t, os.WriteFile(os.Getenv(been), nil, 0o600))
				t.Error("too late")
			}
		})
		if os.Getenv(childVariable) == "" {
			assert.Contains(t, again, "TestRetried/fails_only_once\n")
			assert.Contains(t, again, "too late")
		}
	})
}

func TestRetried_OnlyLateness(t *testing.T) {
	out := `=== RUN   TestA
    a_test.go:1: too late
--- FAIL: TestA (0.10s)
    --- FAIL: TestA/the_first (0.05s)
    --- FAIL: TestA/a+b (0.05s)
--- FAIL: TestB (0.10s)
`
	failed := failures(out)
	assert.Equal(t, []string{"TestA/the_first", "TestA/a+b", "TestB"}, failed)
	assert.Equal(t, `^(TestA|TestB)$/^(the_first|a\+b)$`, pattern(failed))
	assert.False(t, realtime.NotLate.MatchString(out))
	for _, fatal := range []string{"WARNING: DATA RACE\n", "panic: ouch\n", "fatal error: all goroutines are asleep\n", "    x.go:1: 101 were granted of 100\n"} {
		assert.True(t, realtime.NotLate.MatchString(out+fatal), fatal)
	}
	for asked, want := range map[string]string{
		"": "^(TestA)$/^(b)$", "TestA": "^(TestA)$/^(b)$", "Test/b": "^(TestA)$/^(b)$", "A/b/c/d": "^(TestA)$/^(b)$/c/d",
		"B|A/b/c": "^(TestA)$/^(b)$",
	} {
		assert.Equal(t, want, onlyOf(asked, "TestA/b"), asked)
	}
}

func TestFailures(t *testing.T) {
	out := `--- FAIL: TestX (1.00s)
    --- FAIL: TestX/a (0.00s)
        --- FAIL: TestX/a/it_is_(sometimes)_so (0.10s)
            file.go:1: something
        --- PASS: TestX/a/other (0.10s)
    --- FAIL: TestX/b (0.00s)
`
	failed := failures(out)
	require.Equal(t, []string{"TestX/a/it_is_(sometimes)_so", "TestX/b"}, failed)
	require.Equal(t, `^(TestX)$/^(a|b)$/^(it_is_\(sometimes\)_so)$`, pattern(failed))
}
