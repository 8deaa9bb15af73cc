package stores

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

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
