package weirtest_test

import (
	"context"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/weirtest"
)

func TestOrdersWaitAsLongAsTheLimiterAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := weirtest.NewLimiter(weirtest.Reject(time.Minute, "busy"), weirtest.Grant().After(time.Second))
		var events weirtest.Recorder
		orders := weir.Must(pipeline.Config{
			Strategies: []pipeline.Strategy{retry.New(nil), ratelimit.New(busy, nil)},
			Listener:   &events,
		}.Build())

		start := time.Now()
		err := orders.Execute(t.Context(), func(context.Context) error { return nil })
		if took := time.Since(start); err != nil || took != 61*time.Second {
			t.Errorf("got %v after %v", err, took)
		}
		if n := events.Count(retry.EventRetry); n != 1 {
			t.Errorf("%d retries", n)
		}
	})
}

// An Example has no *testing.T, so the package comment shows a test. It must be the one that runs here.
func TestPackageCommentShowsTheTestAbove(t *testing.T) {
	doc, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	require.NoError(t, err)
	source, err := os.ReadFile("doc_test.go")
	require.NoError(t, err)
	_, test, _ := strings.Cut(string(source), "\nfunc TestOrders")
	test, _, _ = strings.Cut("func TestOrders"+test, "\n}\n")
	shown := strings.ReplaceAll(doc.Doc.Text(), "\n\t", "\n")
	require.Contains(t, shown, test+"\n}\n")
}
