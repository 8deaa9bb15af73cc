package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// address stands in arguments for the host:port that the server is to listen on.
const address = "{{addr}}"

// A recipe is what has to be known of a kind of server to run it.
type recipe struct {
	name      string                                         // in messages, and in the name of the folder
	url       func(addr string) string                       // what clients are given
	prepare   func(ctx context.Context, data string) error   // fills the folder of data; nil: nothing to do
	command   func(data string, port int) (*exec.Cmd, error) // runs in the foreground, logs to its output; its Env is added to ours
	answers   func(addr string) error                        // nil once it serves clients
	says      string                                         // what it logs when it is ready, with any {{addr}} replaced; case does not matter
	end       syscall.Signal                                 // asks it to end and to keep its data
	container *container                                     // nil: it runs on this machine
	clear     func(data string)                              // removes what it keeps outside of data; may be nil
	owner     owner                                          // the user that it runs as
	patience  time.Duration                                  // how long a start may take
}

// An instance is a server of ours. Its methods are called with mu held.
type instance struct {
	recipe
	mu      sync.Mutex
	dir     string // everything it writes; "" once it is stopped for good
	port    int
	process *process // nil before the first start and after the end
	paused  bool
}

// starts is how often a start is tried: another process may have taken the port that was free just now, and
// what a killed PostgreSQL held takes a moment to go.
const starts = 5

func newInstance(ctx context.Context, r recipe) (*instance, error) {
	dir, err := os.MkdirTemp("", "weir-"+r.name+"-")
	if err != nil {
		return nil, fmt.Errorf("testserver: %w", err)
	}
	in := &instance{recipe: r, dir: dir}
	err = in.fill(ctx)
	for range starts {
		if err != nil {
			break
		}
		if in.port, err = freePort(); err != nil {
			break
		}
		err = in.start(ctx)
		if !errors.Is(err, errEnded) {
			break
		}
	}
	if err != nil {
		in.stop()
		return nil, fmt.Errorf("testserver: start %s: %w", r.name, err)
	}
	return in, nil
}

func (in *instance) addr() string { return hostPort(in.port) }
func (in *instance) data() string { return filepath.Join(in.dir, "data") }
func (in *instance) log() string  { return filepath.Join(in.dir, "log") }

// fill replaces the folder of data by a new one.
func (in *instance) fill(ctx context.Context) error {
	if err := os.RemoveAll(in.data()); err != nil {
		return err
	}
	if err := os.Mkdir(in.data(), 0o700); err != nil {
		return err
	}
	if in.owner != (owner{}) {
		for _, dir := range []string{in.dir, in.data()} {
			if err := os.Chown(dir, int(in.owner.uid), int(in.owner.gid)); err != nil {
				return err
			}
		}
	}
	if in.prepare == nil {
		return nil
	}
	return in.prepare(ctx, in.data())
}

// errEnded is the error of a start after which the process ended by itself.
var errEnded = errors.New("it ended at once")

// start runs the server and waits until it answers. What does not is killed.
func (in *instance) start(ctx context.Context) error {
	cmd, err := in.command(in.data(), in.port)
	if err != nil {
		return err
	}
	log, err := os.Create(in.log())
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own
	cmd.Dir, cmd.Env = in.data(), append(environment(), cmd.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes(in.owner)
	if in.process, err = startProcess(cmd); err != nil {
		return err
	}
	in.paused = false
	if err := in.await(ctx); err != nil {
		in.kill()
		return fmt.Errorf("%w; its log:\n%s", err, in.logTail())
	}
	return nil
}

// await polls until the process is ready. It looks at the log as well as the port, because another server can answer on
// the port.
func (in *instance) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, in.patience, fmt.Errorf("not ready after %v", in.patience))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-in.process.done:
			return fmt.Errorf("%w: %v", errEnded, in.process.cmd.ProcessState)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		if in.isReady() && in.answers(in.addr()) == nil {
			return nil
		}
	}
}

func (in *instance) isReady() bool {
	log, err := os.ReadFile(in.log())
	says := strings.ReplaceAll(in.says, address, in.addr())
	return err == nil && bytes.Contains(bytes.ToLower(log), []byte(strings.ToLower(says)))
}

// logTail is the end of what it printed since its last start.
func (in *instance) logTail() string {
	const most = 4000
	log, err := os.ReadFile(in.log())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-most):])
}

// What becomes of an instance after its start. All of it is called with in.mu held.

func (in *instance) running() bool { return in.process != nil && !in.process.ended() }

func (in *instance) kill() {
	if in.running() {
		if c := in.container; c != nil {
			c.kill(in.process.cmd.Process)
		} else {
			kill(in.process.cmd.Process)
		}
		<-in.process.done
	}
	in.process, in.paused = nil, false
}

func (in *instance) pause() {
	if in.running() && !in.paused {
		if c := in.container; c != nil {
			c.pause()
		} else {
			pause(in.process.cmd.Process)
		}
		in.paused = true
	}
}

func (in *instance) resume() {
	if in.running() && in.paused {
		if c := in.container; c != nil {
			c.resume()
		} else {
			resume(in.process.cmd.Process)
		}
	}
	in.paused = false
}

// quit asks it to end, and kills it if it does not.
func (in *instance) quit() {
	in.resume()
	if in.running() {
		if c := in.container; c != nil {
			c.quit()
		} else {
			_ = in.process.cmd.Process.Signal(in.end)
		}
		timeout := time.NewTimer(5 * time.Second)
		defer timeout.Stop()
		select {
		case <-in.process.done:
		case <-timeout.C:
		}
	}
	in.kill()
}

func (in *instance) restart(ctx context.Context, empty bool) error {
	if in.dir == "" {
		return fmt.Errorf("testserver: Restart of %s after Stop", in.name)
	}
	in.quit()
	if empty {
		if in.clear != nil {
			in.clear(in.data())
		}
		if err := in.fill(ctx); err != nil {
			return fmt.Errorf("testserver: restart %s: %w", in.name, err)
		}
	}
	var err error
	for range starts {
		err = in.start(ctx)
		if !errors.Is(err, errEnded) {
			break
		}
		// What holds the port or the memory is not ours to wait for: a process that was just killed, or a
		// connection that happens to come from our port.
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("testserver: restart %s: %w", in.name, err)
	}
	return nil
}

// stop ends it for good.
func (in *instance) stop() {
	if in.dir == "" {
		return
	}
	in.quit()
	if in.clear != nil {
		in.clear(in.data())
	}
	removeAll(in.dir)
	in.dir = ""
}

// removeAll tries more than once: a process that was killed may write a last file while we remove its folder.
func removeAll(dir string) {
	for range 20 {
		if os.RemoveAll(dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
