package testserver

import (
	"cmp"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// lookup finds a server's program on PATH or in one of the folders, on systems where tests can run it.
func lookup(name string, folders ...string) (string, bool) {
	if !canRunHere {
		return "", false
	}
	if found, err := exec.LookPath(name); err == nil {
		// Absolute: the server runs in another folder.
		if found, err = filepath.Abs(found); err == nil {
			return found, true
		}
	}
	for _, folder := range folders {
		file := filepath.Join(folder, name)
		if info, err := os.Stat(file); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return file, true
		}
	}
	return "", false
}

// postgresFolders is where packages put PostgreSQL's programs, which most keep off PATH; newest version first.
func postgresFolders() []string {
	var found []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
		"/usr/pgsql-*/bin",                   // Fedora and its kin
		"/opt/homebrew/opt/postgresql@*/bin", // macOS
		"/usr/local/opt/postgresql@*/bin",    // macOS on Intel
	} {
		folders, _ := filepath.Glob(pattern)
		found = append(found, folders...)
	}
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
	return found
}

var digits = regexp.MustCompile(`[0-9]+`)

// version is the first number in the path.
func version(path string) int {
	n, _ := strconv.Atoi(digits.FindString(path))
	return n
}

// highestPort leaves room for the second port of a Redis in cluster mode, which is 10000 above the first.
const highestPort = 55535

// freePort returns a port of 127.0.0.1 that is free now. It holds ports that are too high until it has found one, so that
// the system offers others.
func freePort() (int, error) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		defer func() { _ = l.Close() }()
		if port := l.Addr().(*net.TCPAddr).Port; port <= highestPort {
			return port, nil
		}
	}
	return 0, errors.New("no free port below " + strconv.Itoa(highestPort))
}

// FreeAddress returns a host:port of this machine at which nothing listens.
func FreeAddress() (string, error) {
	port, err := freePort()
	return hostPort(port), err
}

func hostPort(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
