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

	"github.com/weir-go/weir/internal/ctxerr"
)

// Processes runs the drills of several processes that share limiters and are busy all the time.
func Processes(t *testing.T, s Subject) {
	t.Run("shares", func(t *testing.T) { shares(t, s) })
	t.Run("refills", func(t *testing.T) { refills(t, s) })
	t.Run("leases", func(t *testing.T) { heldWithinLimit(t, s) })
}

// Holders runs the drills of a process that holds a lease, and lives, stops or is killed.
func Holders(t *testing.T, s Subject) {
	all := map[string]func(*testing.T, Subject){
		"killed holder": killedHolder, "living holder": livingHolder, "stopped holder": stoppedHolder,
	}
	Wide(t, len(all), func() {
		for name, drill := range all {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // most of the time, it waits for a lease to end
				drill(t, s)
			})
		}
	})
}

// Fairness tests that processes that wait for the same permits all the time get about the same number of them.
func Fairness(t *testing.T, s Subject) {
	Apart(t, func() { fairShares(t, s) })
}

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

// startAll starts n instances with a job, and lets them begin together.
func startAll(t testing.TB, n int, j job) []*process {
	t.Helper()
	all := prepareAll(t, n, j)
	beginAll(all...)
	return all
}

// prepareAll starts n instances with a job, which wait for a command.
func prepareAll(t testing.TB, n int, j job) []*process {
	t.Helper()
	all := make([]*process, n)
	for i := range all {
		all[i] = start(t, j)
	}
	for _, p := range all {
		p.await("ready")
	}
	return all
}

func beginAll(all ...*process) {
	for _, p := range all {
		p.send()
	}
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
			t.Logf("an instance has written: %s", p.stderr.Bytes())
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

// linesOf returns all lines of a kind.
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
	eventually(p.t, "an instance writes "+what, func() bool {
		ended := ctxerr.Closed(p.read)
		written := len(p.linesOf(what)) > 0
		if ended && !written {
			p.kill()
			p.t.Fatalf("an instance has ended without writing %s: %s", what, p.stderr.Bytes())
		}
		return written
	})
	return p.linesOf(what)[0]
}

// send sends a command. Its meaning depends on the job.
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

// finishAll waits until the processes that were not killed have ended. If hurry is true, it first ends their work;
// otherwise their work must end by itself.
func finishAll(all []*process, hurry bool) {
	for _, p := range all {
		if hurry && p.cmd.ProcessState == nil {
			_ = p.stdin.Close() // all at the same time
		}
	}
	for _, p := range all {
		p.t.Helper()
		if p.cmd.ProcessState != nil {
			continue
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
}

// pause stops the process as a virtual machine is suspended: the process does not learn of it. Where no signal does so, the test is
// skipped.
func (p *process) pause() {
	if stop == nil {
		p.t.Skip("this system has no signal that stops a process")
	}
	p.signal(stop)
}

func (p *process) resume() { p.signal(goOn) }

func (p *process) signal(s os.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Error(err)
	}
}
