package testserver

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// NewPgBouncer starts a PgBouncer in transaction mode in front of s, stopped at the test's end. The test is
// skipped where there is none, whatever WEIR_REQUIRE_SERVERS says. It lets everybody in, as the user of s's URL. settings
// are "name = value", as in its file.
func NewPgBouncer(t testing.TB, s *Server, settings ...string) *Server {
	t.Helper()
	program, found := lookup("pgbouncer", "/usr/sbin", "/opt/homebrew/bin", "/usr/local/bin")
	if !found {
		t.Skip("no pgbouncer: install it (apt-get install pgbouncer, brew install pgbouncer)")
	}
	owner, err := unprivileged()
	if err != nil {
		t.Fatalf("PgBouncer does not run as root: %v", err)
	}
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatalf("the URL of the server behind PgBouncer: %v", err)
	}
	user, database := target.User.Username(), strings.TrimPrefix(target.Path, "/")
	bouncer, err := launch(t.Context(), recipe{
		name: "pgbouncer",
		url: func(addr string) string {
			return "postgres://" + user + "@" + addr + "/" + database + "?sslmode=disable"
		},
		answers:  func(addr string) error { return postgresAnswers(addr, user, database) },
		says:     "process up",
		end:      syscall.SIGQUIT,
		owner:    owner,
		patience: 30 * time.Second,
		command: func(data string, port int) (*exec.Cmd, error) {
			file := filepath.Join(data, "pgbouncer.ini")
			// Only the owner of the folder can read it. If that is not root, the file belongs to root.
			return exec.Command(program, file), os.WriteFile(file, []byte(bouncerConfig(target, s.Addr(), port)+strings.Join(settings, "\n")), 0o644)
		},
	})
	return ownedBy(t, usable(t, bouncer, err, true))
}

func bouncerConfig(target *url.URL, addr string, port int) string {
	host, behind, _ := net.SplitHostPort(addr) // Addr made it
	login := "user=" + quoted(target.User.Username())
	if password, set := target.User.Password(); set {
		login += " password=" + quoted(password)
	}
	tls := target.Query().Get("sslmode")
	if tls == "" {
		tls = "prefer"
	}
	// auth_type any: every client becomes the user of the database line.
	return fmt.Sprintf(`[databases]
* = host=%s port=%s %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
ignore_startup_parameters = extra_float_digits
server_tls_sslmode = %s
`, host, behind, login, port, tls)
}

// quoted is a value as PgBouncer's database lines take it.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
