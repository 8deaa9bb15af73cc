package stores

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/telemetry"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRedisOptions(t *testing.T) {
	o, err := redisOptions(fileconfig.Store{Redis: "redis://user:of-url@redis.internal:6379/2"}, "")
	require.NoError(t, err)
	assert.Equal(t, "of-url", o.Password)
	assert.Equal(t, 1, o.DialerRetries, "a server that refuses connections is away at once")
	o, err = redisOptions(fileconfig.Store{Redis: "redis://user:of-url@redis.internal:6379/2"}, "of-file")
	require.NoError(t, err)
	assert.Equal(t, "of-file", o.Password)
	_, err = redisOptions(fileconfig.Store{Redis: "http://redis.internal"}, "")
	require.Error(t, err)
}

// Probe waits for a store that does not answer no longer than its call timeout.
func TestStores_Probe(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	tel, err := telemetry.New(nil)
	require.NoError(t, err)
	defer func() { _ = tel.Close() }()
	s := New(tel, &dashboard.Events{}, slog.New(slog.DiscardHandler))
	defer s.Close()
	_, err = s.Get("silent", fileconfig.Store{Redis: "redis://" + silent.Addr().String(), CallTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	s.Probe(t.Context())
	require.Positive(t, s.ByName()["silent"].Counters().Failures)
}
