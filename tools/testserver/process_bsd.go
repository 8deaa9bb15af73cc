//go:build unix && !linux

package testserver

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// attributes leave a server in our process group: without Linux's help, Ctrl-C is the one end of ours that it
// shares.
func attributes(o owner) *syscall.SysProcAttr { return runAs(o) }

// children are the processes that parent started.
func children(parent int) []int {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil
	}
	var found []int
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(fields[0]); err == nil {
			found = append(found, pid)
		}
	}
	return found
}
