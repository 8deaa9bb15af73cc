//go:build !unix

package drill

// pause skips the test: no signal stops a process here.
func (p *process) pause() { p.t.Skip("this system has no signal that stops a process") }

func (p *process) resume() {}
