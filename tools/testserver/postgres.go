package testserver

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Postgres is the one PostgreSQL server that this test process shares, started at the first call. What a test leaves
// in it the next one finds: use tables or a schema of your own.
//
// A test gets a server that does not wait for the disk, which a machine that compiles may keep busy for many seconds.
// A benchmark gets one with the settings that a server has by default.
func Postgres(t testing.TB) *Server {
	t.Helper()
	server, settings := &sharedPostgres, []string{"fsync=off", "max_connections=300"}
	if _, is := t.(*testing.B); is {
		server, settings = &durablePostgres, nil
	}
	s, err := server.get(func(ctx context.Context) (*Server, error) { return namedOrNewPostgres(ctx, settings...) })
	return usable(t, s, err, required(""))
}

// NewPostgres starts a server of the test's own, stopped at the test's end. settings are "name=value", as for
// postgres -c.
func NewPostgres(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := startPostgres(t.Context(), settings)
	return ownedBy(t, usable(t, s, err, required(postgresURL)))
}

// NewStandby starts a standby of a server that this package has started, stopped at the test's end. "select pg_promote()"
// makes it a primary. The test is skipped where PostgreSQL is not a program on this machine.
func NewStandby(t testing.TB, primary *Server) *Server {
	t.Helper()
	folders := postgresFolders()
	copier, found := lookup("pg_basebackup", folders...)
	postgres, both := lookup("postgres", folders...)
	if !found || !both {
		t.Skip("no pg_basebackup: a standby is not started in Docker")
	}
	r := postgresRecipe()
	r.says = "database system is ready to accept read" // -only, or " only" before version 14
	host, port, _ := net.SplitHostPort(primary.Addr())
	err := onMachine(&r, postgres, []string{"-c", "fsync=off"}, func(ctx context.Context, data string) *exec.Cmd {
		return exec.CommandContext(ctx, copier, "-D", data, "-h", host, "-p", port, "-U", "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync")
	})
	var s *Server
	if err == nil {
		s, err = launch(t.Context(), r)
	}
	return ownedBy(t, usable(t, s, err, true))
}

// StartPostgres is Postgres for programs that are no tests. The caller stops the server; ctx is for the start
// only.
func StartPostgres(ctx context.Context) (*Server, error) { return namedOrNewPostgres(ctx) }

func namedOrNewPostgres(ctx context.Context, settings ...string) (*Server, error) {
	if s, err := named(postgresURL, "5432"); s != nil || err != nil {
		return s, err
	}
	return startPostgres(ctx, settings)
}

func startPostgres(ctx context.Context, settings []string) (*Server, error) {
	var flags []string
	for _, setting := range settings {
		flags = append(flags, "-c", setting)
	}
	r := postgresRecipe()
	folders := postgresFolders()
	initdb, found := lookup("initdb", folders...)
	postgres, both := lookup("postgres", folders...)
	switch {
	case found && both:
		err := onMachine(&r, postgres, flags, func(ctx context.Context, data string) *exec.Cmd {
			return exec.CommandContext(ctx, initdb, "-D", data, "--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C")
		})
		if err != nil {
			return nil, err
		}
	case dockerWorks():
		inDocker(&r, container{
			image:   "postgres:15",
			port:    5432,
			command: append([]string{"postgres"}, flags...),
			env:     []string{"POSTGRES_HOST_AUTH_METHOD=trust", "POSTGRES_INITDB_ARGS=--no-sync -E UTF8 --locale=C"},
			keeps:   "/var/lib/postgresql/data",
		})
	default:
		return nil, fmt.Errorf("%w: install PostgreSQL (apt-get install postgresql, brew install postgresql), start Docker, or name a server in %s", ErrNotFound, postgresURL)
	}
	return launch(ctx, r)
}

func postgresRecipe() recipe {
	return recipe{
		name:     "postgres",
		url:      func(addr string) string { return "postgres://postgres@" + addr + "/postgres?sslmode=disable" },
		answers:  func(addr string) error { return postgresAnswers(addr, "postgres", "postgres") },
		says:     "database system is ready to accept connections",
		patience: 60 * time.Second,
	}
}

// onMachine makes r run the program of this machine on a folder of data that fill has filled.
func onMachine(r *recipe, postgres string, flags []string, fill func(ctx context.Context, data string) *exec.Cmd) error {
	owner, err := unprivileged()
	if err != nil {
		return fmt.Errorf("testserver: PostgreSQL does not run as root: %w", err)
	}
	r.owner = owner
	r.end = syscall.SIGQUIT // it ends without a checkpoint; what was committed is in its log
	r.clear = removeSegment
	r.prepare = func(ctx context.Context, data string) error {
		cmd := fill(ctx, data)
		cmd.Dir, cmd.Env = data, environment()
		cmd.SysProcAttr = runAs(owner)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, out)
		}
		return nil
	}
	r.command = func(data string, port int) (*exec.Cmd, error) {
		ours := []string{
			"-D", data, "-p", strconv.Itoa(port),
			"-c", "listen_addresses=127.0.0.1",
			"-c", "unix_socket_directories=",
			"-c", "dynamic_shared_memory_type=mmap", // in the folder, so that nothing is left if it is killed
		}
		return exec.Command(postgres, append(ours, flags...)...), nil
	}
	return nil
}

// removeSegment removes the piece of System V memory by which PostgreSQL knows that it runs, and which stays if
// it is killed. There are only so many for all processes, on macOS very few.
func removeSegment(data string) {
	pidfile, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return // it ended in good order
	}
	// Line 7 is the key and the number of the segment.
	lines := bytes.Split(pidfile, []byte("\n"))
	if len(lines) < 7 {
		return
	}
	if fields := bytes.Fields(lines[6]); len(fields) == 2 {
		_ = exec.Command("ipcrm", "-m", string(fields[1])).Run()
	}
}
