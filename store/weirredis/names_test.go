package weirredis

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store"
)

func TestNamesOfKeys(t *testing.T) {
	n := names{prefix: "weir"}
	for _, c := range []struct{ limiter, key, want string }{
		{"api", "", "weir:{api:}"},
		{"api", "user:7", "weir:{api:user:7}"},
		{"a:b", "c", "weir:{a%3Ab:c}"},
		{"a", "b:c", "weir:{a:b:c}"},
		{"", "", "weir:{:}"},
		{"}", "{}", "weir:{%7D:{%7D}"},
		{"50%", "50%", "weir:{50%25:50%25}"},
		{"a", "\x00\xff", "weir:{a:\x00\xff}"},
	} {
		require.Equal(t, c.want, n.state(c.limiter, c.key))
	}
	require.Equal(t, "weir:{api:k}:leases", n.leases("api", "k"))
	require.Equal(t, "weir:def:{api}", n.definition("api"))
}

func TestMessagesThatAreNotNotices(t *testing.T) {
	n := names{prefix: "weir"}
	for _, message := range []string{"", "x", "weir", "weir:", "weir:{a:b}", "weir:{a}:leases", "weir:def:{a", "other:def:{a}", "weir:{a:b:leases"} {
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
		require.Equal(t, store.Notice{Name: limiter, Key: key, Released: true}, got)
		got, ok = n.notice(n.definition(limiter))
		require.True(t, ok)
		require.Equal(t, store.Notice{Name: limiter}, got)
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
