//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPage_FiveMinutes runs the commands of docs/gateway.md, as a newcomer does, and compares what they print. Only the
// ports are others, and the test itself is the program, which need not be built again.
func TestPage_FiveMinutes(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "curl", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the page's commands need %s: %v", program, err)
		}
	}
	_, section, ok := strings.Cut(read(t, "../../docs/gateway.md"), "\n## Five minutes\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	commands, shown := fenced(section, "sh"), fenced(section, "")
	require.Len(t, commands, 8)
	require.Len(t, shown, 1)

	dir := t.TempDir()
	require.Equal(t, "go install ./cmd/weir\n", commands[0])
	commands[0] = ""
	program := fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", asProgram, os.Args[0])
	require.NoError(t, os.WriteFile(filepath.Join(dir, "weir"), []byte(program), 0o700))
	const end = "\n--- the end of a block ---\n"
	script := ""
	for _, block := range commands {
		script += block + "printf '" + strings.ReplaceAll(end, "\n", `\n`) + "'\n"
	}
	ports := freePorts(t, 3)
	script = strings.NewReplacer("8080", ports[0], "9900", ports[1], "9001", ports[2]).Replace(script)
	script = strings.ReplaceAll(script, "10s}", "1000s}") // on a slow machine, the requests take so long that the bucket gets one back
	script = strings.Replace(script, "weir gateway -config", "weir gateway -admin 127.0.0.1:"+ports[1]+" -config", 1)

	script = "set -eu\ncd '" + dir + "'\n" + script // whose digits are no ports

	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	bash := exec.CommandContext(ctx, "bash", "-c", script)
	bash.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	bash.WaitDelay = time.Second // a failed script leaves its servers behind, and they keep its output open
	bash.Cancel = func() error { return syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) }
	var stdout, stderr bytes.Buffer
	bash.Stdout, bash.Stderr = &stdout, &stderr
	err := bash.Run()
	_ = syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) // what a failed script leaves behind
	log, _ := os.ReadFile(filepath.Join(dir, "weir.log"))
	require.NoError(t, err, "%s\n%s\n%s", stdout.String(), stderr.String(), log)

	printed := strings.Split(stdout.String(), end)
	require.Len(t, printed, len(commands)+1)
	assert.Contains(t, printed[2], "weir.yaml: ok")
	assert.Contains(t, printed[2], "per-client")
	assert.Regexp(t, pattern(shown[0]), strings.ReplaceAll(printed[4], "\r", ""))
	assert.Equal(t, "200\n", printed[5])
	assert.Contains(t, printed[6], `http_response_status_code="429"`)
	assert.Contains(t, printed[6], `"ready": true`)
	assert.Contains(t, printed[6], `"msg":"request"`)
	assert.Contains(t, string(log), "the gateway has stopped")
}

// fenced returns the blocks of a language on a page.
func fenced(text, language string) (blocks []string) {
	fence := regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	for _, found := range fence.FindAllStringSubmatch(text, -1) {
		if found[1] == language {
			blocks = append(blocks, found[2])
		}
	}
	return blocks
}

// pattern returns an expression for an output that the page shows, in which the seconds can be others.
func pattern(shown string) string {
	lines := strings.Split(strings.TrimSpace(shown), "\n")
	for i, line := range lines {
		line = regexp.QuoteMeta(line)
		line = regexp.MustCompile(`([tw])=\d+`).ReplaceAllString(line, `$1=\d+`)
		lines[i] = regexp.MustCompile(`^Retry-After: \d+`).ReplaceAllString(line, `Retry-After: \d+`)
	}
	return "^" + strings.Join(lines, `\s*\n`) + `\s*$`
}

// freePorts returns ports that nothing listens on.
func freePorts(t *testing.T, n int) (ports []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close() // together at the end, so that none comes twice
		_, port, err := net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		ports = append(ports, port)
	}
	return ports
}
