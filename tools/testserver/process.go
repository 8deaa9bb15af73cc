package testserver

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
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

// An owner is the user that a server runs as. The zero owner stands for ours.
type owner struct{ uid, gid uint32 }

// environment is ours without what changes a server's language or a PostgreSQL program's settings: Redis does
// not start where the locale is unknown, and PostgreSQL on macOS not without one.
func environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "PG") || strings.HasPrefix(s, "LC_") || strings.HasPrefix(s, "LANG")
	})
	return append(env, "LC_ALL=C")
}
