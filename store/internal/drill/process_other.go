//go:build !unix

package drill

// pause stops the process without its knowledge. No signal does that here.
func (p *process) pause() { p.t.Skip("this system has no signal that stops a process") }

func (p *process) resume() {}
