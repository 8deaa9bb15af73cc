package testserver

import (
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNamedServer(t *testing.T) {
	tests := []struct{ url, addr string }{
		{"redis://example.com:1234/0", "example.com:1234"},
		{"redis://user:secret@example.com/0", "example.com:6379"},
		{"rediss://[::1]/0", "[::1]:6379"},
	}
	for _, tt := range tests {
		t.Run(tt.url, func(t *testing.T) {
			t.Setenv(redisURL, tt.url)
			s, err := StartRedis(t.Context())
			require.NoError(t, err)
			require.Equal(t, tt.url, s.URL)
			require.Equal(t, tt.addr, s.Addr())
			require.False(t, s.Own())
		})
	}
}

func TestNamedServerIsNotOursToStop(t *testing.T) {
	t.Setenv(postgresURL, "postgres://example.com/db")
	s, err := StartPostgres(t.Context())
	require.NoError(t, err)
	require.Equal(t, "example.com:5432", s.Addr())
	require.Panics(t, s.Kill)
	require.Panics(t, s.Pause)
	require.Panics(t, s.Resume)
	require.Error(t, s.Restart(false))
	s.Stop()
}

func TestNamedServerWithoutAURL(t *testing.T) {
	t.Setenv(redisURL, "redis://user:secret@bad host/0")
	_, err := StartRedis(t.Context())
	require.ErrorContains(t, err, redisURL)
	require.NotContains(t, err.Error(), "secret")
}

func TestOwnServerIgnoresTheNamedOne(t *testing.T) {
	t.Setenv(redisURL, "redis://example.com/0")
	require.True(t, NewRedis(t).Own())
}

func TestNoServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(redisURL, "")
	defer func(before func() bool) { dockerWorks = before }(dockerWorks)
	dockerWorks = func() bool { return false }
	_, err := StartRedis(t.Context())
	require.ErrorIs(t, err, ErrNotFound)
	for _, help := range []string{"apt-get install redis-server", "brew install", "Docker", redisURL} {
		require.ErrorContains(t, err, help)
	}
}

func TestRequired(t *testing.T) {
	t.Setenv(redisURL, "")
	t.Setenv(requireServers, "")
	require.False(t, required(redisURL))
	t.Setenv(requireServers, "1")
	require.True(t, required(redisURL))
	t.Setenv(redisURL, "redis://example.com/0")
	require.False(t, required(redisURL), "one was named, and a second is not to be had")
}

func TestLookup(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", t.TempDir())
	require.NoError(t, os.WriteFile(dir+"/server", nil, 0o755))
	require.NoError(t, os.WriteFile(dir+"/text", nil, 0o644))
	found, ok := lookup("server", "/nowhere", dir)
	require.True(t, ok)
	require.Equal(t, dir+"/server", found)
	_, ok = lookup("text", dir)
	require.False(t, ok)
}

func TestVersion(t *testing.T) {
	require.Equal(t, 15, version("/usr/lib/postgresql/15/bin"))
	require.Equal(t, 9, version("/usr/pgsql-9.6/bin"))
	require.Zero(t, version("/usr/bin"))
}

func TestFreePort(t *testing.T) {
	for range 50 {
		port, err := freePort()
		require.NoError(t, err)
		require.LessOrEqual(t, port, highestPort)
	}
}

func TestBouncerConfig(t *testing.T) {
	target, err := url.Parse("postgres://o%27neil:it%27s@example.com/db?sslmode=require")
	require.NoError(t, err)
	config := bouncerConfig(target, "example.com:5432", 6000)
	require.Contains(t, config, "* = host=example.com port=5432 user='o''neil' password='it''s'\n")
	require.Contains(t, config, "listen_port = 6000\n")
	require.Contains(t, config, "server_tls_sslmode = require\n")
}

func TestContainerArguments(t *testing.T) {
	c := container{image: "postgres:15", port: 5432, command: []string{"postgres", "-c", "fsync=off"}, env: []string{"A=b"}, keeps: "/data", name: "weir-1"}
	require.Equal(t, []string{
		"run", "--rm", "--interactive", "--name", "weir-1", "--publish", "127.0.0.1:6000:5432",
		"--env", "A=b", "--volume", "weir-1:/data",
		"--entrypoint", "sh", "postgres:15", "-c", untilStdinEnds, "sh", "docker-entrypoint.sh",
		"postgres", "-c", "fsync=off",
	}, c.arguments(6000))
}
