//go:build !js

package rlsoracle

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exitInvalid is the exit status of weir for a file that is wrong.
const exitInvalid = 1

// loads reports whether weir rls accepts files of the other server. text is what it says.
func loads(t *testing.T, weir string, merge bool, files ...string) (ok bool, text string) {
	t.Helper()
	dir := t.TempDir()
	for i, file := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), []byte(file), 0o600))
	}
	args := []string{"rls", "-ratelimit-config", dir, "-mode", "envoy", "-print"}
	if merge {
		args = append(args, "-merge-domains")
	}
	out, err := exec.CommandContext(t.Context(), weir, args...).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == exitInvalid {
		return false, string(out)
	}
	require.NoError(t, err, string(out))
	return true, string(out)
}

// sameVerdict checks that both servers accept the files, or neither.
func sameVerdict(t *testing.T, weir string, o *otherServer, merge bool, files ...string) (ok bool) {
	t.Helper()
	ours, text := loads(t, weir, merge, files...)
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
	o, program := onMiniredis(t, switches{}), weir(t)
	files := otherFiles(t)
	good := 0
	for name, content := range files {
		t.Run(name, func(t *testing.T) {
			if sameVerdict(t, program, o, false, content) {
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
			assert.Equal(t, c.ok, sameVerdict(t, program, o, c.merge, contents...))
		})
	}
}

// TestLoader_mutations checks the same with files that have small mistakes.
func TestLoader_mutations(t *testing.T) {
	o, program := onMiniredis(t, switches{}), weir(t)
	g, n := newGenerator(t, 100)
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
		if sameVerdict(t, program, o, false, file) {
			good++
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of %d files were good", good, n)
}

// mutation returns a file with a small change: a line less or more, another indentation, key, value or character.
func (g *generator) mutation(file string) string {
	lines := strings.Split(file, "\n")
	i := g.IntN(len(lines))
	line := lines[i]
	indent := line[:len(line)-len(strings.TrimLeft(line, " -"))]
	_, value, isPair := strings.Cut(line, ": ")
	switch n := g.IntN(5); {
	case n == 0:
		lines = slices.Delete(lines, i, i+1)
	case n == 1:
		lines[i] = strings.TrimPrefix(line, "  ")
	case n == 2 && isPair:
		lines[i] = strings.TrimSuffix(line, value) + pick(g, []string{
			"", "0", "-1", "4294967296", "1e3", "0x10", "010", "true", "yes", "~", `"a"`, "'5'", "[]", "{a: b}", "Second", "weeks", "a: b", "!!str 5", "*x", "\x01",
		})
	case n == 3 && isPair:
		lines[i] = indent + pick(g, []string{
			"domain", "key", "value", "unit", "unlimited", "replaces", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "Key", "ratelimit", "5", "null", "<<",
		}) + ": " + value
	case n == 4 && len(line) > 0:
		at := g.IntN(len(line))
		lines[i] = line[:at] + pick(g, []string{"", " ", ":", "-", "#", "'", "{", "]", "\t", "&", "%", ","}) + line[at+1:]
	default:
		lines[i] += "\n" + indent + pick(g, []string{
			strings.TrimSpace(line), "unlimited: true", "unit: minute", "quota_mode: yes", "- key: a", "key: a", "-", "replaces: [{name: a}]", "replaces: [{}]",
			"descriptors: [~]", "rate_limit: ~", "# comment", "---", "...", "\t",
		})
	}
	return strings.Join(lines, "\n")
}
