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
	read   chan struct{} // closed when it has nothing more to say
	killed time.Time

	mu    sync.Mutex
	lines []line
}

// A line is what an instance has said; see job.
type line struct {
	what string
	args []int64
	at   time.Time
}

// startAll starts as many instances as there are jobs, and lets them begin together.
func startAll(t testing.TB, jobs ...job) []*process {
	t.Helper()
	all := prepareAll(t, jobs...)
	beginAll(all)
	return all
}

// prepareAll starts instances, which wait for a word.
func prepareAll(t testing.TB, jobs ...job) []*process {
	t.Helper()
	var all []*process
	for _, j := range jobs {
		all = append(all, start(t, j))
	}
	for _, p := range all {
		p.says("ready")
	}
	return all
}

func beginAll(all []*process) {
	for _, p := range all {
		p.word()
	}
}

// same are n times the same job.
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
	// The race detector by itself waits a second at the end.
	p.cmd.Env = append(os.Environ(), instanceVariable+"="+string(text), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	p.cmd.Stderr = &p.stderr
	p.stdin = must(p.cmd.StdinPipe())(t)
	stdout := must(p.cmd.StdoutPipe())(t)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.listen(stdout)
	t.Cleanup(func() {
		p.kill() // nothing, where it has ended
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
			continue // it was killed in the middle of a word
		}
		l.at = time.Unix(0, l.args[len(l.args)-1])
		p.mu.Lock()
		p.lines = append(p.lines, l)
		p.mu.Unlock()
	}
}

// said are all lines of a kind.
func (p *process) said(what string) (all []line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if l.what == what {
			all = append(all, l)
		}
	}
	return all
}

// says waits for the first line of a kind.
func (p *process) says(what string) line {
	p.t.Helper()
	eventually(p.t, "an instance says "+what, func() bool {
		select {
		case <-p.read:
			if len(p.said(what)) == 0 {
				p.kill()
				p.t.Fatalf("an instance has ended without saying %s: %s", what, p.stderr.Bytes())
			}
		default:
		}
		return len(p.said(what)) > 0
	})
	return p.said(what)[0]
}

// word tells it something; what, it knows.
func (p *process) word() {
	if _, err := p.stdin.Write([]byte("\n")); err != nil {
		p.t.Error(err)
	}
}

// kill ends it as a crash would.
func (p *process) kill() {
	if p.cmd.ProcessState != nil {
		return
	}
	p.killed = time.Now()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Error(err)
	}
	<-p.read
	_ = p.cmd.Wait() // that it was killed is no news
}

// finish waits until it has ended by itself; hurry: what goes on for ever is to end.
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
			_ = p.stdin.Close() // all of them at the same time
		}
	}
	for _, p := range all {
		p.t.Helper()
		p.finish(hurry)
	}
}
