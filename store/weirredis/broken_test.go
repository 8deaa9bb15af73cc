package weirredis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/internal/drill"
)

func TestBackend_KeyWithAnImpossibleVersion(t *testing.T) {
	b, client := shared(t)
	junk := doubles(8e15, 1, 1, 1, 1, 1, 1) + "xxxxxxxxxxxxxxxxxxxxxxxxxxx"
	drill.ImpossibleVersion(t, b, func(name, key string) {
		require.NoError(t, client.Set(t.Context(), b.names.state(name, key), junk, 0).Err())
		require.NoError(t, client.HSet(t.Context(), b.names.leases(name, key), "", junk[:56]).Err())
	})
}
