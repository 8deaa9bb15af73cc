package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/stretchr/testify/require"
	"github.com/weir-go/weir/tools/testserver"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "instance" { // started by a test
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestEveryWindowGrantsExactlyTheLimit(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), &out)
	if errors.Is(err, testserver.ErrNotFound) && os.Getenv("WEIR_REQUIRE_SERVERS") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err, out.String())
	if n := strings.Count(out.String(), "60 of 60"); n != windows {
		t.Errorf("%d of %d windows granted 60\n%s", n, windows, out.String())
	}
}
