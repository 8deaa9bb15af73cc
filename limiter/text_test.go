package limiter_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// A Lease inside of another value is readable in JSON, also in that of a log line.
func TestLease_MarshalText(t *testing.T) {
	rejection := struct{ Lease limiter.Lease }{custom.Rejected(time.Second, "too busy")}
	text, err := json.Marshal(rejection)
	require.NoError(t, err)
	assert.JSONEq(t, `{"Lease": "rejected: too busy, retry after 1s"}`, string(text))
	text, err = json.Marshal([]limiter.Lease{custom.Granted(3, nil), {}})
	require.NoError(t, err)
	assert.JSONEq(t, `["granted 3 permits", "rejected"]`, string(text))

	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	log.Info("m", "rejection", rejection)
	assert.Contains(t, out.String(), `"rejection":{"Lease":"rejected: too busy, retry after 1s"}`)
}
