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

func kill(p *os.Process) { _ = p.Kill() }

func pause(*os.Process) {}

func resume(*os.Process) {}
