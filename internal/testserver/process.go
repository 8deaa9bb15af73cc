package testserver

import (
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A process is a child of ours.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// startProcess starts cmd from a goroutine that keeps its thread until the process ends. Linux kills the child
// when the thread that started it ends, not when the process does, and Go ends threads as it likes.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended shows in its log
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// A control stops a running server in several ways.
type control interface {
	kill(*os.Process)
	pause(*os.Process)
	resume(*os.Process)
	quit(*os.Process) // asks it to end and to keep its data
}

// signals control a process and its children. A signal to the process group would not do: each child of
// PostgreSQL makes a group of its own. No error is looked at: the one there can be is that the process ended.
type signals struct {
	end syscall.Signal // the one for quit
}

func (signals) kill(p *os.Process) {
	signals{}.pause(p) // or it would start others while we kill its children
	for _, pid := range children(p.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = p.Kill()
}

func (signals) pause(p *os.Process) {
	_ = p.Signal(syscall.SIGSTOP)
	// Twice: it may have been starting a child when it was stopped.
	for range 2 {
		for _, pid := range children(p.Pid) {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
	}
}

func (signals) resume(p *os.Process) {
	for _, pid := range children(p.Pid) {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	_ = p.Signal(syscall.SIGCONT)
}

func (s signals) quit(p *os.Process) { _ = p.Signal(s.end) }

// environment is ours without what changes a server's language or a PostgreSQL program's settings: Redis does
// not start where the locale is unknown, and PostgreSQL on macOS not without one.
func environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "PG") || strings.HasPrefix(s, "LC_") || strings.HasPrefix(s, "LANG")
	})
	return append(env, "LC_ALL=C")
}

// unprivileged is whom to run as what refuses to run as root; nil if we are not root.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
