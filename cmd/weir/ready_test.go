package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReady(t *testing.T) {
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/ready", r.URL.Path)
		w.WriteHeader(status)
		_, _ = w.Write([]byte("the state"))
	}))
	defer s.Close()
	ready := func(args ...string) (exit int, stdout, stderr string) {
		var out, errOut bytes.Buffer
		exit = run(append([]string{"ready"}, args...), nil, &out, &errOut)
		return exit, out.String(), errOut.String()
	}
	address := s.Listener.Addr().String()

	exit, stdout, stderr := ready(address)
	require.Equal(t, exitOK, exit, stderr)
	assert.Equal(t, "the state", stdout)

	status = http.StatusServiceUnavailable
	exit, stdout, _ = ready(address)
	assert.Equal(t, exitInvalid, exit)
	assert.Equal(t, "the state", stdout, "why not")

	s.Close()
	exit, _, stderr = ready(address)
	assert.Equal(t, exitInvalid, exit)
	assert.Contains(t, stderr, "weir ready: ")

	for _, args := range [][]string{{"9900"}, {address, address}, {""}} {
		exit, _, stderr = ready(args...)
		assert.Equal(t, exitError, exit, args)
		assert.Contains(t, stderr, "address")
	}
}
