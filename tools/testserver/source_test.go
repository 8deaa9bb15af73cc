package testserver

import (
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
			require.Nil(t, s.own)
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

func TestRequired(t *testing.T) {
	t.Setenv(redisURL, "")
	t.Setenv(requireServers, "")
	require.False(t, required(redisURL))
	t.Setenv(requireServers, "1")
	require.True(t, required(redisURL))
	t.Setenv(redisURL, "redis://example.com/0")
	require.False(t, required(redisURL), "one was named, and a second is not to be had")
}
