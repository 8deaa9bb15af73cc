//go:build !unix

package testserver

import (
	"errors"
	"os"
	"syscall"
)

// canRunHere reports whether servers can be run from programs that are installed. The tests pause them by
// signals, which this system does not have: here servers run in Docker or are named in the environment.
const canRunHere = false

func unprivileged() (owner, error) { return owner{}, errors.ErrUnsupported }

func attributes(owner) *syscall.SysProcAttr { return nil }

func runAs(owner) *syscall.SysProcAttr { return nil }

// signals stands for the control that other systems have. Nothing here makes a server with it: canRunHere is false.
type signals struct{ end syscall.Signal }

func (signals) kill(p *os.Process)   { _ = p.Kill() }
func (signals) pause(p *os.Process)  {}
func (signals) resume(p *os.Process) {}
func (s signals) quit(p *os.Process) { _ = p.Signal(s.end) }
