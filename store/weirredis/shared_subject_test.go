package weirredis

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/drill"
	"github.com/weir-go/weir/tools/testserver"
)

// The drills start this test binary again as an instance of a service.
func init() { drill.Main(openPlace) }

// A place is a URL of go-redis and a prefix.
func placeAt(url string) string {
	return fmt.Sprintf("%s %s-%d", url, freshPrefix(), os.Getpid())
}

func openPlace(place string) (backend.Backend, func(), error) {
	// Else a call goes on for seconds after its context has ended; see Backend.
	return openWith(place, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
}

// openAsUsual has the options that go-redis has by itself.
func openAsUsual(place string) (backend.Backend, func(), error) {
	return openWith(place, func(*redis.Options) {})
}

func openWith(place string, configure func(*redis.Options)) (backend.Backend, func(), error) {
	url, prefix, _ := strings.Cut(place, " ")
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, err
	}
	configure(o)
	client := redis.NewClient(o)
	b, err := NewBackend(client, &BackendOptions{Prefix: prefix})
	return b, func() { _ = client.Close() }, err
}

func drillSubject() drill.Subject {
	return drill.Subject{
		Open:  openPlace,
		Place: func(t testing.TB) string { return placeAt(testserver.Redis(t).URL) },
		NoLeaks: func(t testing.TB) {
			there := goleak.IgnoreCurrent()
			restarted := goleak.IgnoreAnyFunction("github.com/weir-go/weir/tools/testserver.startProcess.func1")
			t.Cleanup(func() { goleak.VerifyNone(t, there, restarted) })
		},
		Calls: scriptCalls,
	}
}

var evalCalls = regexp.MustCompile(`cmdstat_(?:evalsha|eval):calls=(\d+)`)

// scriptCalls returns how many scripts the server has run for all clients.
func scriptCalls(t testing.TB, place string) (n int64) {
	url, _, _ := strings.Cut(place, " ")
	info, err := connect(t, url).Info(context.Background(), "commandstats").Result()
	require.NoError(t, err)
	for _, m := range evalCalls.FindAllStringSubmatch(info, -1) {
		calls, err := strconv.ParseInt(m[1], 10, 64)
		require.NoError(t, err)
		n += calls
	}
	return n
}
