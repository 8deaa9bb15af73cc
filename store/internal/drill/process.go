package drill

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A process is an instance that the test has started.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
	read   chan struct{} // closed at the end of its output
	killed time.Time

	mu    sync.Mutex
	lines []line
}

// A line is a line of an instance's output; see job.
type line struct {
	what string
	args []int64
	at   time.Time
}

// startAll starts an instance for each job, and lets them begin together.
func startAll(t testing.TB, jobs ...job) []*process {
	t.Helper()
	all := prepareAll(t, jobs...)
	beginAll(all)
	return all
}

// prepareAll starts instances, which wait for a command.
func prepareAll(t testing.TB, jobs ...job) []*process {
	t.Helper()
	var all []*process
	for _, j := range jobs {
		all = append(all, start(t, j))
	}
	for _, p := range all {
		p.await("ready")
	}
	return all
}

func beginAll(all []*process) {
	for _, p := range all {
		p.send()
	}
}

// same returns n copies of a job.
func same(n int, j job) []job {
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i] = j
	}
	return jobs
}

func start(t testing.TB, j job) *process {
	t.Helper()
	text := must(json.Marshal(j))(t)
	p := &process{t: t, cmd: exec.Command(os.Args[0]), read: make(chan struct{})}
	// The race detector waits a second at the end by default.
	p.cmd.Env = append(os.Environ(), instanceVariable+"="+string(text), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	p.cmd.Stderr = &p.stderr
	p.stdin = must(p.cmd.StdinPipe())(t)
	stdout := must(p.cmd.StdoutPipe())(t)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.listen(stdout)
	t.Cleanup(func() {
		p.kill() // no effect after its end
		if t.Failed() && p.stderr.Len() > 0 {
			t.Logf("an instance said: %s", p.stderr.Bytes())
		}
	})
	return p
}

func (p *process) listen(stdout io.Reader) {
	defer close(p.read)
	for in := bufio.NewScanner(stdout); in.Scan(); {
		fields := strings.Fields(in.Text())
		l := line{what: fields[0]}
		for _, f := range fields[1:] {
			n, _ := strconv.ParseInt(f, 10, 64)
			l.args = append(l.args, n)
		}
		if len(l.args) == 0 {
			continue // killed in the middle of a line
		}
		l.at = time.Unix(0, l.args[len(l.args)-1])
		p.mu.Lock()
		p.lines = append(p.lines, l)
		p.mu.Unlock()
	}
}

// linesOf are all lines of a kind.
func (p *process) linesOf(what string) (all []line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if l.what == what {
			all = append(all, l)
		}
	}
	return all
}

// await waits for the first line of a kind.
func (p *process) await(what string) line {
	p.t.Helper()
	eventually(p.t, "an instance says "+what, func() bool {
		select {
		case <-p.read:
			if len(p.linesOf(what)) == 0 {
				p.kill()
				p.t.Fatalf("an instance has ended without saying %s: %s", what, p.stderr.Bytes())
			}
		default:
		}
		return len(p.linesOf(what)) > 0
	})
	return p.linesOf(what)[0]
}

// send tells it something; what, it knows.
func (p *process) send() {
	if _, err := p.stdin.Write([]byte("\n")); err != nil {
		p.t.Error(err)
	}
}

// kill ends the process as a crash does.
func (p *process) kill() {
	if p.cmd.ProcessState != nil {
		return
	}
	p.killed = time.Now()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Error(err)
	}
	<-p.read
	_ = p.cmd.Wait() // the error is that it was killed
}

// finish waits until the process has ended by itself; hurry ends work that is unlimited.
func (p *process) finish(hurry bool) {
	p.t.Helper()
	if p.cmd.ProcessState != nil {
		return
	}
	if hurry {
		_ = p.stdin.Close()
	}
	select {
	case <-p.read:
	case <-time.After(4 * patience):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // a Go program prints the stacks of its goroutines
		<-p.read
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatalf("an instance: %v: %s", err, p.stderr.Bytes())
	}
}

func finishAll(all []*process, hurry bool) {
	for _, p := range all {
		if hurry && p.cmd.ProcessState == nil {
			_ = p.stdin.Close() // all at the same time
		}
	}
	for _, p := range all {
		p.t.Helper()
		p.finish(hurry)
	}
}
