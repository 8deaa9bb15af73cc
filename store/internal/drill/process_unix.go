//go:build unix

package drill

import "syscall"

// pause stops the process as a virtual machine is suspended: the process does not learn of it.
func (p *process) pause() { p.signal(syscall.SIGSTOP) }

func (p *process) resume() { p.signal(syscall.SIGCONT) }

func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Error(err)
	}
}
