package weirpostgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/internal/drill"
)

func TestBackend_KeyWithAnImpossibleVersion(t *testing.T) {
	place, schema := newPlace(t, postgres(t))
	opened, disconnect, err := openPlace(place)
	require.NoError(t, err)
	t.Cleanup(disconnect)
	b := opened.(*Backend)
	set := func(version string) func(name, key string) {
		return func(name, key string) {
			for _, table := range []string{"states", "semaphores"} {
				_, err := b.pool.Exec(t.Context(), `update "`+schema+`".`+table+` set version = `+version+` where name = $1 and key = $2`, name, []byte(key))
				require.NoError(t, err)
			}
		}
	}
	drill.ImpossibleVersion(t, b, set("8000000000000000"), set("9223372036854775807"))
}
