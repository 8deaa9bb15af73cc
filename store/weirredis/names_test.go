package weirredis

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
)

// state returns the name of a key's state.
func (n names) state(limiter, key string) string {
	return n.place(limiter, placeOf(key)) + stateMark + key
}

// leases returns the name of a key's leases.
func (n names) leases(limiter, key string) string {
	return n.place(limiter, placeOf(key)) + leasesMark + key
}

func TestNames_Keys(t *testing.T) {
	n := names{prefix: "weir"}
	for _, c := range []struct{ limiter, key, want string }{
		{"api", "", "weir:{api:45}:s:"},
		{"api", "user:7", "weir:{api:3d}:s:user:7"},
		{"a:b", "c", "weir:{a%3Ab:52}:s:c"},
		{"", "", "weir:{:45}:s:"},
		{"}", "{}", "weir:{%7D:25}:s:{}"},
		{"50%", "50%", "weir:{50%25:5f}:s:50%"},
	} {
		require.Equal(t, c.want, n.state(c.limiter, c.key))
	}
	require.Equal(t, "weir:{api:6a}:l:k", n.leases("api", "k"))
	require.Equal(t, "weir:{api:45}:def", n.definition("api"))
}

func TestNames_OtherMessages(t *testing.T) {
	n := names{prefix: "weir"}
	for _, message := range []string{"", "x", "weir", "weir:", "weir:{a:45}", "weir:{a}:l:", "weir:{a:45}:s:k", "weir:{a:45:def", "other:{a:45}:def", "weir:{a:45:l:"} {
		_, ok := n.notice(message)
		require.False(t, ok, message)
	}
}

// All parts of one key are in one slot of a Cluster, and what is written can be read.
func FuzzNames(f *testing.F) {
	f.Add("api", "user:7")
	f.Add("", "")
	f.Add("}", "%7D")
	f.Add("{a}", "{b}")
	n := names{prefix: "weir"}
	f.Fuzz(func(t *testing.T, limiter, key string) {
		got, ok := n.notice(n.leases(limiter, key))
		require.True(t, ok)
		require.Equal(t, backend.Notice{Name: limiter, Key: key, Released: true}, got)
		got, ok = n.notice(n.definition(limiter))
		require.True(t, ok)
		require.Equal(t, backend.Notice{Name: limiter}, got)
		require.NotEmpty(t, tag(n.state(limiter, key)))
		require.Equal(t, tag(n.state(limiter, key)), tag(n.leases(limiter, key)))
	})
}

// tag is the part of a key's name that decides about its slot.
func tag(name string) string {
	_, rest, _ := strings.Cut(name, "{")
	inside, _, _ := strings.Cut(rest, "}")
	return inside
}
