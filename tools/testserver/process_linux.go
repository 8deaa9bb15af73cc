package testserver

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// attributes let a server die with us, whatever we die of, and keep Ctrl-C from it: a program may want to say
// goodbye to it first.
func attributes(o owner) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Credential: o.credential()}
}

// children are the processes that parent started, by /proc: a small container may have no ps.
func children(parent int) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	var found []int
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it ended
		}
		// "pid (name) state parent ...", and a name may hold spaces and brackets.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 || string(fields[1]) != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			found = append(found, pid)
		}
	}
	return found
}
