package testserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// listens reports whether something accepts connections. The log has said already that it is the server.
func listens(addr string) error {
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// getOK returns nil if the URL answers 200.
func getOK(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	_, err := get(ctx, url)
	return err
}

// get returns the body of an answer 200. The error for another answer has its beginning.
func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := plainHTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.500s", resp.Status, body)
	}
	return body, nil
}

// plainHTTP keeps no connection open, so that no goroutine outlives a test.
var plainHTTP = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// program finds a program that tests run: the one that the environment variable names, or else the first of names on PATH.
func program(variable, install string, names ...string) (string, error) {
	if path := os.Getenv(variable); path != "" {
		found, ok := lookup(path)
		if !ok {
			return "", fmt.Errorf("testserver: %s is %q, which is not a program", variable, path)
		}
		return found, nil
	}
	for _, name := range names {
		// Debian keeps servers in /usr/sbin, which may not be on the PATH of a user.
		if found, ok := lookup(name, "/usr/sbin"); ok {
			return found, nil
		}
	}
	return "", fmt.Errorf("%w: install it (%s), or name the program in %s", ErrNotFound, install, variable)
}

// needed is program for a test, which is skipped without it, or fails if servers are required.
func needed(t testing.TB, variable, install string, names ...string) string {
	t.Helper()
	found, err := program(variable, install, names...)
	usable(t, nil, err, required(""))
	return found
}

// StartProgram starts a program of this repository that listens, stopped at the test's end. Each {{addr}} in args and says is
// replaced by the host:port that it is to listen on. It is ready when its output has the text says, in any case of letters, and it
// accepts connections.
func StartProgram(t testing.TB, says, program string, args ...string) *Server {
	t.Helper()
	r := recipe{name: strings.TrimSuffix(filepath.Base(program), ".exe")}
	r.command = func(_ string, port int) (*exec.Cmd, error) {
		with := make([]string, len(args))
		for i, arg := range args {
			with[i] = strings.ReplaceAll(arg, address, hostPort(port))
		}
		return exec.Command(program, with...), nil
	}
	r.says = says
	return webserver(t, r)
}

// Start starts the program that command returns for a free host:port, and waits until it accepts connections there.
func Start(ctx context.Context, command func(addr string) (*exec.Cmd, error)) (*Server, error) {
	return launch(ctx, web(recipe{name: "program", command: func(_ string, port int) (*exec.Cmd, error) {
		return command(hostPort(port))
	}}))
}

// webserver starts a program that serves HTTP.
func webserver(t testing.TB, r recipe) *Server {
	t.Helper()
	s, err := launch(t.Context(), web(r))
	return ownedBy(t, usable(t, s, err, required("")))
}

// web completes the recipe of a program that serves HTTP.
func web(r recipe) recipe {
	r.url = func(addr string) string { return "http://" + addr }
	if r.answers == nil {
		r.answers = listens
	}
	r.end = syscall.SIGTERM
	r.patience = 30 * time.Second
	return r
}
