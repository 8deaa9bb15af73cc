package weirredis

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/tools/testserver"
)

// The time of this one is the server's.
func TestSuite(t *testing.T) {
	client := connect(t, testserver.Redis(t).URL)
	prefix := freshPrefix()
	storetest.Run(t, storetest.Subject{
		New: func(t testing.TB) backend.Backend {
			b, err := NewBackend(client, &BackendOptions{Prefix: prefix})
			require.NoError(t, err)
			return b
		},
		Keys: func(t testing.TB, b backend.Backend, name string) int {
			return countKeys(t, b.(*Backend), name)
		},
	})
}

// The time of this one is set.
func TestSuiteWithClock(t *testing.T) {
	client := connect(t, testserver.Redis(t).URL)
	prefix := freshPrefix()
	storetest.Run(t, storetest.Subject{
		New:     func(t testing.TB) backend.Backend { return newSteered(t, client, prefix) },
		SetTime: func(t testing.TB, b backend.Backend, micros int64) { b.(*steered).setTime(t, micros) },
		Keys: func(t testing.TB, b backend.Backend, name string) int {
			return countKeys(t, b.(*steered).Backend, name)
		},
	})
}

// countKeys is of how many keys of a limiter the state is stored.
func countKeys(t testing.TB, b *Backend, name string) (n int) {
	t.Helper()
	start := b.names.start() + nameEscaper.Replace(name) + ":"
	all := b.client.Scan(context.Background(), 0, b.names.prefix+":*", 10_000).Iterator()
	for all.Next(context.Background()) {
		if strings.HasPrefix(all.Val(), start) && strings.Contains(all.Val(), "}"+stateMark) {
			n++
		}
	}
	require.NoError(t, all.Err())
	return n
}
