//go:build unix

package testserver

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// canRunHere reports whether servers can be run from programs that are installed: the tests pause them by signals.
const canRunHere = true

// runAs makes a child run as o and leaves its group and its end as they are.
func runAs(o owner) *syscall.SysProcAttr { return &syscall.SysProcAttr{Credential: o.credential()} }

// credential returns how a child is made to run as o.
func (o owner) credential() *syscall.Credential {
	if o == (owner{}) {
		return nil
	}
	return &syscall.Credential{Uid: o.uid, Gid: o.gid}
}

// kill, pause and resume control a process and its children. A signal to the process group would not do: each child of
// PostgreSQL makes a group of its own. No error is looked at: the one there can be is that the process ended.
func kill(p *os.Process) {
	pause(p) // or it would start others while we kill its children
	for _, pid := range children(p.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = p.Kill()
}

func pause(p *os.Process) {
	_ = p.Signal(syscall.SIGSTOP)
	// Twice: it may have been starting a child when it was stopped.
	for range 2 {
		for _, pid := range children(p.Pid) {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
	}
}

func resume(p *os.Process) {
	for _, pid := range children(p.Pid) {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	_ = p.Signal(syscall.SIGCONT)
}

// unprivileged returns the owner for servers that refuse to run as root: the zero owner if we are not root.
func unprivileged() (owner, error) {
	if os.Geteuid() != 0 {
		return owner{}, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return owner{}, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return owner{}, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return owner{}, err
	}
	return owner{uint32(uid), uint32(gid)}, nil
}
