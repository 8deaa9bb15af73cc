package testserver

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPostgresIsShared(t *testing.T) {
	s := Postgres(t)
	require.Same(t, s, Postgres(t))
	if !s.Own() {
		t.Skip("the rest speaks to a server without a password")
	}
	require.Equal(t, "postgres://postgres@"+s.Addr()+"/postgres?sslmode=disable", s.URL)
	require.Equal(t, "off", query(t, s.Addr(), "SHOW fsync"))
	require.Equal(t, "UTF8", query(t, s.Addr(), "SHOW server_encoding"))
}

func TestNewPostgresSettings(t *testing.T) {
	s := NewPostgres(t, "max_connections=17", "synchronous_commit=off")
	require.Equal(t, "17", query(t, s.Addr(), "SHOW max_connections"))
	require.Equal(t, "off", query(t, s.Addr(), "SHOW synchronous_commit"))
}

func TestPostgresKillAndRestart(t *testing.T) {
	s := NewPostgres(t)
	require.Empty(t, query(t, s.Addr(), "CREATE TABLE kept AS SELECT 42 AS n"))
	open := openSession(t, s.Addr())

	s.Kill()
	require.True(t, refused(s.Addr()))
	_, err := open.r.ReadByte()
	require.Error(t, err, "the session's process must be gone with the others")

	require.NoError(t, s.Restart(false))
	require.Equal(t, "42", query(t, s.Addr(), "SELECT n FROM kept"))
	require.NoError(t, s.Restart(false)) // without Kill before it
	require.Equal(t, "42", query(t, s.Addr(), "SELECT n FROM kept"))
	s.Kill()
	require.NoError(t, s.Restart(true))
	require.Contains(t, query(t, s.Addr(), "SELECT n FROM kept"), "error")
}

func TestPostgresPause(t *testing.T) {
	s := NewPostgres(t)
	open := openSession(t, s.Addr())
	s.Pause()
	open.send(t, "Q", "SELECT 7\x00")
	// Real time passes here: that no answer comes cannot be seen otherwise.
	require.NoError(t, open.conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := open.r.ReadByte()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	s.Resume()
	require.NoError(t, open.conn.SetReadDeadline(time.Now().Add(patience)))
	require.NoError(t, untilReady(open.r))
	require.Equal(t, "8", open.query(t, "SELECT 8"))
}

func TestPostgresThatDoesNotStart(t *testing.T) {
	if !Postgres(t).Own() {
		t.Skip("there may be none to start here")
	}
	_, err := startPostgres(t.Context(), []string{"no_such_setting=1"})
	require.ErrorContains(t, err, "no_such_setting") // from its log
}

func TestPgBouncer(t *testing.T) {
	behind := NewPostgres(t)
	s := NewPgBouncer(t, behind)
	require.NotEqual(t, behind.Addr(), s.Addr())

	// In transaction mode two sessions that take turns have one session of the server.
	one, two := openSession(t, s.Addr()), openSession(t, s.Addr())
	pid := one.query(t, "SELECT pg_backend_pid()")
	require.NotEmpty(t, pid)
	require.Equal(t, pid, two.query(t, "SELECT pg_backend_pid()"))

	s.Kill()
	require.True(t, refused(s.Addr()))
	require.NoError(t, s.Restart(false))
	require.Equal(t, "1", query(t, s.Addr(), "SELECT 1"))
}
