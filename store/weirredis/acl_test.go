package weirredis

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/tools/testserver"
)

// documentedUser makes the user of the docs on servers, with the commands for a Cluster if there are several, and returns
// options of a client that is this user.
func documentedUser(t testing.TB, servers ...*testserver.Server) *redis.UniversalOptions {
	t.Helper()
	page, err := os.ReadFile("../../docs/shared-limits.md")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^ACL SETUSER app on >secret .*$`).FindString(string(page))
	inCluster := regexp.MustCompile("A Redis Cluster needs `([^`]*)`").FindStringSubmatch(string(page))
	require.NotEmpty(t, line)
	require.NotEmpty(t, inCluster)
	if len(servers) > 1 {
		line += " " + inCluster[1]
	}
	o := &redis.UniversalOptions{Username: "app", Password: "secret", ContextTimeoutEnabled: true}
	for _, server := range servers {
		setACL(t, connect(t, server.URL), line)
		o.Addrs = append(o.Addrs, server.Addr())
	}
	return o
}

func setACL(t testing.TB, admin *redis.Client, line string) {
	t.Helper()
	var args []any
	for word := range strings.FieldsSeq(line) {
		args = append(args, word)
	}
	require.NoError(t, admin.Do(context.Background(), args...).Err(), line)
}

func TestSuite_WithDocumentedACL(t *testing.T) {
	t.Parallel()
	client := redis.NewUniversalClient(documentedUser(t, testserver.NewRedis(t)))
	t.Cleanup(func() { _ = client.Close() })
	storetest.Run(t, storetest.Subject{New: func(t testing.TB) backend.Backend {
		b, err := NewBackend(client, nil)
		require.NoError(t, err)
		return b
	}})
}

func TestKeyError(t *testing.T) {
	const sha = "5b3be2b1c1a6f8a4e6a1d8a9f0b1c2d3e4f5a6b7"
	for text, ofKey := range map[string]bool{
		// Redis 7, Redis 8, Valkey
		"ERR user_script:12: bad argument #2 to 'unpack' (data string too short) script: " + sha + ", on @user_script:12.":            true,
		"WRONGTYPE Operation against a key holding the wrong kind of value script: " + sha + ", on @user_script:3.":                   true,
		"ERR The user executing the script can't run this command or subcommand script: " + sha + ", on @user_script:54.":             false,
		"ERR ACL failure in script: User app has no permissions to run the 'set' command script: " + sha + ", on @user_script:54.":    false,
		"NOPERM ACL failure in script: User app has no permissions to run the 'set' command script: " + sha + ", on @user_script:54.": false,
		"NOPERM User app has no permissions to run the 'evalsha' command":                                                             false,
		"ERR Unknown Redis command called from script script: " + sha + ", on @user_script:5.":                                        false,
		"OOM command not allowed when used memory > 'maxmemory'. script: " + sha + ", on @user_script:54.":                            false,
		"MISCONF Errors writing to the AOF file: No space left on device":                                                             false,
		"READONLY You can't write against a read only replica. script: " + sha + ", on @user_script:54.":                              false,
		// Redis 6
		"ERR Error running script (call to f_" + sha + "): @user_script:12: user_script:12: bad argument #2 to 'unpack'":                                           true,
		"ERR Error running script (call to f_" + sha + "): @user_script:3: WRONGTYPE Operation against a key holding the wrong kind of value":                      true,
		"ERR Error running script (call to f_" + sha + "): @user_script:54: @user_script: 54: The user executing the script can't run this command or subcommand ": false,
		"ERR Error running script (call to f_" + sha + "): @user_script:54: @user_script: 54: -READONLY You can't write against a read only replica.":              false,
		// a Cluster
		"TRYAGAIN Multiple keys request during rehashing of slot": true,
		"MOVED 3999 127.0.0.1:6381":                               true,
		"ASK 3999 127.0.0.1:6381":                                 true,
		"CLUSTERDOWN Hash slot not served":                        true,
		"CLUSTERDOWN The cluster is down":                         false,
	} {
		assert.Equal(t, ofKey, keyError(fmt.Errorf("wrapped: %w", serverError(text))), text)
	}
	assert.False(t, keyError(nil))
}

// A serverError is one that a server has answered.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}
