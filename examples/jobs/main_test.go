package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/jobs"
	"github.com/weir-go/weir/tools/stopwatch"
	"github.com/weir-go/weir/tools/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Runner(m)) }

func TestNewsletterIsShared(t *testing.T) {
	var out strings.Builder
	runProgram(t, &out, &newsletter{
		out:    &out,
		window: jobs.Definition{DynamicWindow: "newsletter", Interval: time.Second, Capacity: 12},
		tenants: []tenant{
			{name: "first", mails: 60},
			{name: "second", mails: 30, joins: 1500 * time.Millisecond},
			{name: "third", mails: 12, joins: 3500 * time.Millisecond},
		},
	})
	if !stopwatch.Running { // on a busy machine windows can be used up later or not at all
		return
	}
	rest := out.String()
	for _, shares := range []string{
		"       12        0        0       12\n", // alone
		"        6        6        0       12\n",
		"        4        4        4       12\n",
	} {
		var found bool
		if _, rest, found = strings.Cut(rest, shares); !found {
			t.Errorf("no window with these shares, in this order:\n%s\n%s", shares, out.String())
		}
	}
}

func TestBatchesAreNotMixed(t *testing.T) {
	var out strings.Builder
	b := &batches{out: &out, names: []string{"a", "b", "c"}, parts: 4, work: 20 * time.Millisecond}
	runProgram(t, &out, b)
	if want := len(b.names) * (b.parts + 2); len(b.log) != want {
		t.Errorf("%d jobs ran, not %d\n%s", len(b.log), want, out.String())
	}
	seen := slices.Compact(slices.Clone(b.log))
	if slices.Sort(seen); !slices.Equal(seen, b.names) {
		t.Errorf("the batches are %v\n%s", seen, out.String())
	}
}

// runProgram runs a program and checks that it leaves no schema behind.
func runProgram(t *testing.T, out *strings.Builder, p program) {
	t.Helper()
	server := testserver.Postgres(t)
	seen := &watched{program: p}
	if err := start(t.Context(), server.URL, seen); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	conn, err := pgx.Connect(t.Context(), server.URL)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	var left bool
	require.NoError(t, conn.QueryRow(t.Context(), `select to_regnamespace($1) is not null`, seen.schema).Scan(&left))
	if seen.schema == "" || left {
		t.Errorf("the schema %q is still there", seen.schema)
	}
}

// watched is a program that records its schema.
type watched struct {
	program
	schema string
}

func (w *watched) run(ctx context.Context, a *app) error {
	w.schema = a.schema
	return w.program.run(ctx, a)
}
