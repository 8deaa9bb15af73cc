package simulate

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadCSV_ColumnTwice(t *testing.T) {
	name := filepath.Join(t.TempDir(), "requests.csv")
	require.NoError(t, os.WriteFile(name, []byte("time,key,Key\n1,a,b\n"), 0o600))
	_, err := ReadCSV(name, nil)
	require.ErrorContains(t, err, `the header has the column "key" twice`)
}

func TestMostOf_HugeCosts(t *testing.T) {
	m := newMost(10)
	for range 1000 {
		m.add(1, "a", 1<<62, true)
	}
	require.Equal(t, int64(1000<<30), m.most().KeyPermits)
}
