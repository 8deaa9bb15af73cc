//go:build !js

package rlsoracle

import (
	"bufio"
	"context"
	"fmt"
	"math/rand"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/ratelimit/src/config"
	"github.com/envoyproxy/ratelimit/src/limiter"
	"github.com/envoyproxy/ratelimit/src/provider"
	"github.com/envoyproxy/ratelimit/src/redis"
	"github.com/envoyproxy/ratelimit/src/server"
	ratelimit "github.com/envoyproxy/ratelimit/src/service"
	"github.com/envoyproxy/ratelimit/src/settings"
	"github.com/envoyproxy/ratelimit/src/stats"
	gostats "github.com/lyft/gostats"
	"github.com/stretchr/testify/require"
)

// switches are options that both services have.
type switches struct {
	Headers, Metadata, Shadow, Quota bool
}

func (s switches) String() string {
	return fmt.Sprintf("headers=%t,metadata=%t,shadow=%t,quota=%t", s.Headers, s.Metadata, s.Shadow, s.Quota)
}

// otherServer is the service of envoyproxy/ratelimit over a Redis. It runs outside of the bubbles of testing/synctest, in
// which ours runs, since it speaks to a server. So that both have the same time, each question brings its time.
type otherServer struct {
	switches switches
	manager  stats.Manager
	service  ratelimit.RateLimitServiceServer
	clock    atomic.Int64 // seconds since 1970
	flush    func()

	questions chan question
	answers   chan answer
}

type question struct {
	now     time.Time
	request *ratelimitv3.RateLimitRequest
}

type answer struct {
	response *ratelimitv3.RateLimitResponse
	err      error
	panicked any
}

// UnixNow implements the other server's TimeSource.
func (o *otherServer) UnixNow() int64 { return o.clock.Load() }

// newOtherServer returns a service with some switches. Counters are kept in a Redis of the test's own at addr, which flush
// empties.
func newOtherServer(t *testing.T, addr string, flush func(), s switches) *otherServer {
	t.Helper()
	for name, on := range map[string]bool{
		"LIMIT_RESPONSE_HEADERS_ENABLED": s.Headers, "RESPONSE_DYNAMIC_METADATA": s.Metadata, "SHADOW_MODE": s.Shadow, "QUOTA_MODE": s.Quota,
	} {
		t.Setenv(name, strconv.FormatBool(on))
	}
	store := gostats.NewStore(gostats.NewNullSink(), false)
	o := &otherServer{
		switches: s, flush: flush, manager: stats.NewStatManager(store, settings.Settings{}),
		questions: make(chan question), answers: make(chan answer),
	}
	// The jitter keeps counters in a real Redis while the bubble's time stands still.
	jitter, options := rand.New(constant(3000)), settings.Settings{
		RedisSocketType: "tcp", RedisType: "single", RedisUrl: addr, RedisPoolSize: 2, RedisTimeout: 10 * time.Second, NearLimitRatio: 0.8,
	}
	cache, closer := redis.NewRateLimiterCacheImplFromSettings(options, nil, scope{store: store}, o, jitter, 1<<20, o.manager)
	t.Cleanup(func() { _ = closer.Close() })
	o.service = newOtherService(cache, o)

	done := make(chan struct{})
	go func() {
		defer close(done)
		for q := range o.questions {
			o.answers <- o.decide(q)
		}
	}()
	t.Cleanup(func() { close(o.questions); <-done })
	return o
}

func newOtherService(cache limiter.RateLimitCache, o *otherServer) ratelimit.RateLimitServiceServer {
	return ratelimit.NewService(cache, neverUpdates{}, o.manager, nil, o, false, true, false)
}

// onMiniredis returns a service with a Redis in this process.
func onMiniredis(t *testing.T, s switches) *otherServer {
	t.Helper()
	server := miniredis.RunT(t)
	return newOtherServer(t, server.Addr(), server.FlushAll, s)
}

// flushRedis returns what empties a Redis.
func flushRedis(t *testing.T, addr string) func() {
	return func() {
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = fmt.Fprint(conn, "FLUSHALL\r\n")
		require.NoError(t, err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "+OK\r\n", line)
	}
}

// A scope is a server that has measurements and nothing more.
type scope struct {
	server.Server
	store gostats.Store
}

func (s scope) Scope() gostats.Scope { return s.store }

// constant is a source of random numbers that are all the same.
type constant int64

func (c constant) Int63() int64 { return int64(c) }
func (c constant) Seed(int64)   {}

// neverUpdates is a provider of rules that has none: tests set rules by SetConfig.
type neverUpdates struct{}

func (neverUpdates) ConfigUpdateEvent() <-chan provider.ConfigUpdateEvent { return nil }
func (neverUpdates) Stop()                                                {}

// ask returns the answer to a request at a time. It may be called in a bubble.
func (o *otherServer) ask(now time.Time, r *ratelimitv3.RateLimitRequest) answer {
	o.questions <- question{now, r}
	return <-o.answers
}

func (o *otherServer) decide(q question) (a answer) {
	defer func() { a.panicked = recover() }()
	o.clock.Store(q.now.Unix())
	a.response, a.err = o.service.ShouldRateLimit(context.Background(), q.request)
	return a
}

// load reads files as the other server does at start-up.
func (o *otherServer) load(merge bool, files ...string) (c config.RateLimitConfig, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case config.RateLimitConfigError:
			err = p
		default:
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	var all []config.RateLimitConfigToLoad
	for i, file := range files {
		name := fmt.Sprintf("%d.yaml", i)
		all = append(all, config.RateLimitConfigToLoad{Name: name, ConfigYaml: config.ConfigFileContentToYaml(name, file)})
	}
	return config.NewRateLimitConfigImpl(all, o.manager, merge), nil
}

// use makes the service use some rules, and forget what it has counted.
func (o *otherServer) use(rules []*domainRules) error {
	var files []string
	for _, d := range rules {
		files = append(files, d.file())
	}
	c, err := o.load(false, files...)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, strings.Join(files, "---\n"))
	}
	o.flush()
	o.service.SetConfig(update{c}, false)
	return nil
}

// An update has new rules for the service.
type update struct{ config config.RateLimitConfig }

func (u update) GetConfig() (config.RateLimitConfig, any) { return u.config, nil }

// otherFolder returns the folder of the other server's module, which Go has downloaded to build the tests.
func otherFolder(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/envoyproxy/ratelimit").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}
