package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/tools/testserver"
)

// The demo in four and a half seconds, with two processes on a real PostgreSQL.
func TestDemo(t *testing.T) {
	url := testserver.Postgres(t).URL
	t.Setenv(postgresURL, url)
	out, status := runCommand(t, "-for", "4500ms", "-every", "500ms", "-log")
	if status != limitHeld {
		t.Fatalf("status %d\n%s", status, out)
	}
	for _, want := range []string{
		"Two instances share one limit through the server of " + postgresURL,
		"The limiter is weir:",
		"user-1 may have a GET every 2s, so 3 of 448 can succeed",
		"   time   sent   ok    429 fail  open     p99   sent",
		"\n   0.5s  ", "\n   4.5s  ", "\nlimiter, granted  ", "\nlimiter, rejected  ", "\nPOST created             10",
		"to its log, for 448 calls of the limiter",
		"The limit held, ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	// On a machine that stands still for a moment it can be one less.
	if !regexp.MustCompile(`\nuser-1: ([23]) successes, and [23] are allowed`).MatchString(out) {
		t.Error(out)
	}
	if n := strings.Count(out, `"msg":"request"`); n != 448+10 {
		t.Errorf("the log has %d requests", n)
	}
	checkNothingLeft(t, url)
}

// checkNothingLeft checks that the runs have dropped their schemas and ended their instances.
func checkNothingLeft(t *testing.T, url string) {
	t.Helper()
	err := withConnection(t.Context(), url, func(ctx context.Context, c *pgx.Conn) error {
		var left int
		if err := c.QueryRow(ctx, `select count(*) from pg_namespace where nspname like 'partner\_%'`).Scan(&left); err != nil {
			return err
		}
		if left > 0 {
			return fmt.Errorf("%d schemas are left", left)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if pids := childrenOf(t, os.Getpid()); len(pids) > 0 {
		t.Errorf("processes %v are left", pids)
	}
}

// childrenOf returns the instances that a process has started, on Linux.
func childrenOf(t *testing.T, parent int) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // the name can have spaces
		fields := strings.Fields(rest)
		line, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if err != nil || fields[1] != strconv.Itoa(parent) || !strings.Contains(string(line), "\x00serve\x00") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// A program is this program as a process of its own, while it sends its load.
type program struct {
	*exec.Cmd
	instances []string // their addresses
	rest      io.Reader
	temporary string // its folder for temporary files
}

// startProgram starts the demo on that server, or on one of its own.
func startProgram(t *testing.T, postgres string) *program {
	t.Helper()
	testserver.Postgres(t) // or the test is skipped
	temporary := t.TempDir()
	if err := os.Chmod(filepath.Dir(temporary), 0o755); err != nil { // PostgreSQL may run as another user
		t.Fatal(err)
	}
	p := &program{Cmd: exec.Command(os.Args[0], "-for", "5m", "-every", "100ms"), temporary: temporary}
	p.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+temporary, "GOCOVERDIR="+temporary, postgresURL+"="+postgres)
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stderr = p.Stdout
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.ProcessState == nil {
			_ = p.Process.Kill()
			_ = p.Wait()
		}
	})
	lines := bufio.NewReader(out)
	p.rest = lines
	text := ""
	for !strings.Contains(text, "1 of 1") { // the first row
		line, err := lines.ReadString('\n')
		if text += line; err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	for _, match := range regexp.MustCompile(`metrics at http://(.*)/metrics`).FindAllStringSubmatch(text, -1) {
		p.instances = append(p.instances, match[1])
	}
	if len(p.instances) != 2 {
		t.Fatal(text)
	}
	return p
}

// end waits for the program and returns what it has printed, and its status.
func (p *program) end(t *testing.T) (text string, status int) {
	t.Helper()
	rest, err := io.ReadAll(p.rest)
	if err != nil {
		t.Error(err)
	}
	if err := p.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Error(err)
	}
	for _, address := range p.instances { // they have ended, or do so now
		for {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
			if err != nil {
				break
			}
			c.Close()
		}
	}
	return string(rest), p.ProcessState.ExitCode()
}

// Ctrl-C ends the instances and PostgreSQL, and the verdict is about what was sent by then.
func TestDemo_Interrupt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted")
	}
	p := startProgram(t, os.Getenv(postgresURL))
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	text, status := p.end(t)
	if status != notFinished || !strings.Contains(text, "The limit held") || !strings.Contains(text, "partner: interrupt") {
		t.Errorf("status %d\n%s", status, text)
	}
	left, err := os.ReadDir(p.temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// A killed program cannot end its instances. They end themselves.
func TestDemo_Killed(t *testing.T) {
	server := testserver.NewPostgres(t) // its own: the schema stays
	p := startProgram(t, server.URL)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end(t)
}

// If an instance dies, the run is over, and says so.
func TestDemo_InstanceDies(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the instances are found by /proc")
	}
	p := startProgram(t, testserver.Postgres(t).URL)
	pids := childrenOf(t, p.Process.Pid)
	if len(pids) != 2 {
		t.Fatal(pids)
	}
	instance, err := os.FindProcess(pids[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := instance.Kill(); err != nil {
		t.Fatal(err)
	}
	text, status := p.end(t)
	if status != notFinished || !strings.Contains(text, "has ended by itself (signal: killed)") {
		t.Errorf("status %d\n%s", status, text)
	}
	checkNothingLeft(t, testserver.Postgres(t).URL)
}

func TestDemo_NoServer(t *testing.T) {
	t.Setenv(postgresURL, "postgres://user:secret@127.0.0.1:1/none")
	if out, status := runCommand(t); status != notFinished || strings.Contains(out, "secret") {
		t.Errorf("status %d\n%s", status, out)
	}
	if pids := childrenOf(t, os.Getpid()); len(pids) > 0 {
		t.Errorf("processes %v are left", pids)
	}
}

func TestCommand_WrongUsage(t *testing.T) {
	t.Setenv(postgresURL, "")
	for _, c := range []struct{ arguments, want string }{
		{"-variant fast", `-variant must be one of weir, nowait, exclusion, upsert, got "fast"`},
		{"-for 2h", "the load must last from 1ms to 1h0m0s, got 2h0m0s"},
		{"-for 0", "the load must last from 1ms"},
		{"-every 1ns", "-every must be at least 10ms, got 1ns"},
		{"-fast", "flag provided but not defined"},
		{"run", `"run" is no command`},
		{"serve", postgresURL + " must be the URL"},
		{"serve extra", `unexpected argument "extra"`},
		{"load", "-targets must be URLs such as http://127.0.0.1:8080"},
		{"load -targets 127.0.0.1:80", "-targets must be URLs such as http://127.0.0.1:8080"},
	} {
		if out, status := runCommand(t, strings.Fields(c.arguments)...); status != wrongUsage || !strings.Contains(out, c.want) {
			t.Errorf("%s: status %d, %s", c.arguments, status, out)
		}
	}
	if out, status := runCommand(t, "-h"); status != limitHeld || !strings.Contains(out, "-variant") {
		t.Errorf("status %d, %s", status, out)
	}
}

// runCommand runs the program in this process.
func runCommand(t *testing.T, arguments ...string) (out string, status int) {
	t.Helper()
	var text, errs locked
	status = command(t.Context(), arguments, strings.NewReader(""), &text, &errs)
	return text.text.String() + errs.text.String(), status
}

// locked is a buffer for the lines of two instances.
type locked struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// PostgreSQL stands still for a while. weir rejects what it cannot decide, says so, and goes on afterwards.
func TestDemo_PostgresStandsStill(t *testing.T) {
	server := testserver.NewPostgres(t)
	t.Setenv(postgresURL, server.URL)
	reader, writer := io.Pipe()
	var text strings.Builder
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(io.TeeReader(reader, &text))
		paused := false
		for lines.Scan() {
			switch line := lines.Text(); {
			case !paused && strings.Contains(line, "1 of 1"):
				paused = true
				server.Pause()
			case strings.Contains(line, "the first store away"):
				server.Resume()
			}
		}
		if err := lines.Err(); err != nil {
			t.Error(err)
		}
	}()
	var errOut locked
	status := command(t.Context(), []string{"-for", "4s", "-every", "100ms"}, strings.NewReader(""), writer, &errOut)
	writer.Close()
	<-done
	out := text.String()
	if status != limitHeld || errOut.text.Len() > 0 {
		t.Errorf("status %d: %s", status, errOut.text.String())
	}
	for _, want := range []string{" × store away: PostgreSQL has not answered weir in time", "The limit held, but "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}
