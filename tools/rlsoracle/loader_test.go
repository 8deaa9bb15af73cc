//go:build !js

package rlsoracle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exitInvalid is the exit status of weir for a file that is wrong.
const exitInvalid = 1

// loads reports whether weir rls accepts files of the other server. text is what it says.
func loads(t *testing.T, merge bool, files ...string) (ok bool, text string) {
	t.Helper()
	dir := t.TempDir()
	for i, file := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), []byte(file), 0o600))
	}
	args := []string{"rls", "-ratelimit-config", dir, "-mode", "envoy", "-print"}
	if merge {
		args = append(args, "-merge-domains")
	}
	text, status := output(t, weir, args...)
	if status != 0 {
		require.Equal(t, exitInvalid, status, text)
	}
	return status == 0, text
}

// sameVerdict checks that both servers accept the files, or neither.
func sameVerdict(t *testing.T, o *otherServer, merge bool, files ...string) (ok bool) {
	t.Helper()
	ours, text := loads(t, merge, files...)
	_, err := o.load(merge, files...)
	assert.Equal(t, err == nil, ours, "the other server: %v\nweir: %s\nthe files:\n%s", err, text, strings.Join(files, "---\n"))
	return ours
}

// otherFiles returns the names and the contents of the other server's test files and examples.
func otherFiles(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, pattern := range []string{
		"test/config/*.yaml", "examples/ratelimit/config/*.yaml", "test/integration/runtime/current/ratelimit/*.yaml",
		"test/integration/runtime/current/ratelimit/config/*.yaml",
	} {
		found, err := filepath.Glob(filepath.Join(otherFolder(t), filepath.FromSlash(pattern)))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		for _, name := range found {
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			all[filepath.Base(name)] = string(content)
		}
	}
	return all
}

// TestLoader checks that both servers load the same files of the other one's tests and examples.
func TestLoader(t *testing.T) {
	addr, flush := onMiniredis(t)
	o := newOtherServer(t, addr, flush, switches{})
	files := otherFiles(t)
	good := 0
	for name, content := range files {
		t.Run(name, func(t *testing.T) {
			if sameVerdict(t, o, false, content) {
				good++
			}
		})
	}
	assert.Greater(t, good, 8)
	assert.Greater(t, len(files)-good, 10)
	for _, c := range []struct {
		files []string
		merge bool
		ok    bool
	}{
		{[]string{"basic_config.yaml", "duplicate_domain.yaml"}, false, false},
		{[]string{"basic_config.yaml", "duplicate_domain.yaml"}, true, true},
		{[]string{"merge_domain_key1.yaml", "merge_domain_key2.yaml"}, false, false},
		{[]string{"merge_domain_key1.yaml", "merge_domain_key2.yaml"}, true, true},
		{[]string{"merge_domain_key1.yaml", "merge_domain_key1.yaml"}, true, false},
		{[]string{"basic_config.yaml", "another.yaml", "example.yaml"}, false, true},
	} {
		t.Run(fmt.Sprintf("%s,merge=%t", strings.Join(c.files, "+"), c.merge), func(t *testing.T) {
			var contents []string
			for _, name := range c.files {
				require.Contains(t, files, name)
				contents = append(contents, files[name])
			}
			assert.Equal(t, c.ok, sameVerdict(t, o, c.merge, contents...))
		})
	}
}

// TestLoader_mutations checks the same with files that have small mistakes.
func TestLoader_mutations(t *testing.T) {
	addr, flush := onMiniredis(t)
	o := newOtherServer(t, addr, flush, switches{})
	seed := number(t, "WEIR_ORACLE_SEED", uint64(time.Now().UnixNano()))
	g := &generator{Rand: seeded(seed)}
	n := number(t, "WEIR_ORACLE_CASES", 100)
	if testing.Short() {
		n /= 10
	}
	files := otherFiles(t)
	good := 0
	for range n {
		file := files[pick(g, []string{"basic_config.yaml", "share_threshold.yaml", "example.yaml", "shadowmode_config.yaml", "another.yaml"})]
		if g.chance(3) {
			file = (&domainRules{Domain: "edge", Descriptors: g.rules(3)}).file()
		}
		for range 1 + g.IntN(2) {
			file = g.mutation(file)
		}
		if sameVerdict(t, o, false, file) {
			good++
		}
		if t.Failed() {
			t.Fatalf("WEIR_ORACLE_SEED=%d", seed)
		}
	}
	t.Logf("%d of %d files were good", good, n)
}

// mutation returns a file with a small change.
func (g *generator) mutation(file string) string {
	lines := strings.Split(file, "\n")
	i, j := g.IntN(len(lines)), g.IntN(len(lines))
	line := lines[i]
	indent := line[:len(line)-len(strings.TrimLeft(line, " -"))]
	switch g.IntN(8) {
	case 0:
		return strings.Join(slices.Delete(lines, i, i+1), "\n")
	case 1:
		lines[i] = line + "\n" + line
	case 2:
		lines[i], lines[j] = lines[j], lines[i]
	case 3:
		lines[i] = strings.TrimPrefix(line, "  ")
	case 4:
		if key, _, ok := strings.Cut(line, ": "); ok {
			lines[i] = key + ": " + pick(g, []string{
				"", "0", "-1", "4294967295", "4294967296", "1e3", "1.5", "0x10", "010", "1_000", "true", "yes", "off", "~", "null", `"a"`, "'5'", "[]", "{}",
				"[a]", "{a: b}", "minute", "Second", "WEEK", "weeks", "unknown", "2001-01-01", "a: b", "!!str 5", "!!int '5'", "&x 5", "*x", "|", "é", "\x01",
			})
		}
	case 5:
		if _, value, ok := strings.Cut(line, ": "); ok {
			lines[i] = indent + pick(g, []string{
				"domain", "key", "value", "unit", "requests_per_unit", "unlimited", "name", "replaces", "rate_limit", "descriptors", "shadow_mode",
				"quota_mode", "detailed_metric", "value_to_metric", "Key", "RATE_LIMIT", "ratelimit", "requestsperunit", "5", "true", "null", `"key"`, "<<",
			}) + ": " + value
		}
	case 6:
		lines[i] = indent + pick(g, []string{
			"unlimited: true", "unit: minute", "shadow_mode: 1", "quota_mode: yes", "- key: a", "key: a", "value: b", "- a", "-", "replaces: [{name: a}]",
			"replaces: []", "replaces: [{}]", "replaces: [{name: a, key: b}]", "descriptors: {}", "descriptors: [~]", "rate_limit: ~", "rate_limit: {}", "name: a", "# comment", "---", "...", "%YAML 1.2", "\t",
		})
	default:
		if len(line) > 0 {
			at := g.IntN(len(line))
			lines[i] = line[:at] + pick(g, []string{"", " ", ":", "-", "#", "'", `"`, "{", "]", "\t", "&", "%", "@", ","}) + line[at+1:]
		}
	}
	return strings.Join(lines, "\n")
}
