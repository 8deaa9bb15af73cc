//go:build !js

package rlsoracle

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/weir-go/weir/transport/weirrls"
)

// A filter is Envoy's filter as testdata/node/filter.js has it, in a process of Node.
type filter struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

// A filtered is the response that a client of Envoy gets.
type filtered struct {
	Status             int
	Headers            map[string]string
	Body               string
	Code               string  // of the gRPC error
	FailureModeAllowed bool    `json:"failure_mode_allowed"`
	Took               float64 `json:"took_ms"`
}

// nodeModules returns the folder with the packages of testdata/node, which scripts/servers installs. Without it, or without
// Node, the test is skipped, or fails if servers are required.
func nodeModules(t *testing.T) string {
	t.Helper()
	unusable := t.Skipf
	if os.Getenv("WEIR_REQUIRE_SERVERS") == "1" {
		unusable = t.Fatalf
	}
	if _, err := exec.LookPath("node"); err != nil {
		unusable("there is no node: install Node.js 20 or newer, then run scripts/servers")
	}
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	cache = filepath.Join(cache, "weir", "node")
	wanted, err := os.ReadFile(filepath.Join("testdata", "node", "package-lock.json"))
	require.NoError(t, err)
	installed, err := os.ReadFile(filepath.Join(cache, "package-lock.json"))
	if err != nil || !bytes.Equal(wanted, installed) {
		unusable("%s has not the packages of testdata/node: run scripts/servers", cache)
	}
	return filepath.Join(cache, "node_modules")
}

// newFilter starts a filter that asks a server.
func newFilter(t *testing.T, addr string) *filter {
	t.Helper()
	modules := nodeModules(t)
	descriptors := filepath.Join(t.TempDir(), "rls.pb")
	require.NoError(t, os.WriteFile(descriptors, descriptorSet(t), 0o600))
	c := exec.Command("node", filepath.Join("testdata", "node", "filter.js"), addr, descriptors)
	c.Env = append(os.Environ(), "NODE_PATH="+modules)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = in.Close()
		require.NoError(t, c.Wait())
	})
	return &filter{t, in, bufio.NewScanner(out)}
}

// descriptorSet returns the messages of the protocol and all that they refer to, as protoc writes them.
func descriptorSet(t *testing.T) []byte {
	t.Helper()
	set, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	add(ratelimitv3.File_envoy_service_ratelimit_v3_rls_proto)
	b, err := proto.Marshal(set)
	require.NoError(t, err)
	return b
}

// options are those of Envoy's filter.
type options struct {
	Timeout         int  `json:"timeout_ms"`
	FailureModeDeny bool `json:"failure_mode_deny"`
}

// patient are options for tests that are not about the deadline: the first call connects, and other tests compute.
var patient = options{Timeout: 10_000}

// request sends a request through the filter.
func (f *filter) request(text string, o options) filtered {
	f.t.Helper()
	type entry struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	type descriptor struct {
		Entries []entry `json:"entries"`
	}
	r := parseRequest(f.t, text)
	var descriptors []descriptor
	for _, d := range r.Descriptors {
		var own descriptor
		for _, e := range d.Entries {
			own.Entries = append(own.Entries, entry{e.Key, e.Value})
		}
		descriptors = append(descriptors, own)
	}
	line, err := json.Marshal(map[string]any{"options": o, "request": map[string]any{"domain": r.Domain, "descriptors": descriptors}})
	require.NoError(f.t, err)
	_, err = f.in.Write(append(line, '\n'))
	require.NoError(f.t, err)
	require.True(f.t, f.out.Scan(), "node has ended")
	var got filtered
	require.NoError(f.t, json.Unmarshal(f.out.Bytes(), &got))
	return got
}

const nodeRules = `
domain: edge
descriptors:
- {key: a, rate_limit: {unit: day, requests_per_unit: 2, name: per-client}}
- {key: b, rate_limit: {unit: year, requests_per_unit: 100}}
- {key: c, rate_limit: {unlimited: true}}
`

// TestFilter asks weir rls through a model of Envoy's filter, on Node.
func TestFilter(t *testing.T) {
	config := filepath.Join(t.TempDir(), "weir.yaml")
	require.NoError(t, os.WriteFile(config, []byte("rls:\n  mode: envoy\n  headers: true\n  body: problem-json\n"), 0o600))
	server := startWeir(t, []string{nodeRules}, "-config", config)
	f := newFilter(t, server.Addr())

	for _, left := range []string{"1", "0"} {
		got := f.request("edge a=x b=y c=z", patient)
		assert.Equal(t, 200, got.Status)
		assert.Equal(t, `2, 2;w=86400;name="per-client", 100;w=31536000`, got.Headers["x-ratelimit-limit"])
		assert.Equal(t, left, got.Headers["x-ratelimit-remaining"])
		assert.Equal(t, "2", got.Headers["ratelimit-limit"])
		assert.Equal(t, left, got.Headers["ratelimit-remaining"])
		assert.NotContains(t, got.Headers, "retry-after")
		assert.Empty(t, got.Body)
	}

	got := f.request("edge a=x b=y c=z", patient)
	assert.Equal(t, 429, got.Status)
	assert.Equal(t, "true", got.Headers["x-envoy-ratelimited"])
	assert.Equal(t, "application/problem+json", got.Headers["content-type"])
	assert.Equal(t, "0", got.Headers["x-ratelimit-remaining"])
	// The limit of a day, and not that of a year, which has not rejected. The service says when to come back, and Envoy
	// keeps that.
	after, err := strconv.Atoi(got.Headers["retry-after"])
	require.NoError(t, err)
	assert.InDelta(t, time.Until(time.Now().Truncate(24*time.Hour).Add(24*time.Hour)).Seconds(), after, 30)
	var problem map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.Body), &problem))
	assert.Equal(t, "https://iana.org/assignments/http-problem-types#quota-exceeded", problem["type"])
	assert.Equal(t, []any{"per-client"}, problem["violated-policies"])

	assert.Equal(t, 200, f.request("unknown a=x", patient).Status)
	assert.Empty(t, f.request("edge c=z", patient).Headers, "no limit, no headers")

	// The server is away: requests pass, or do not, as the filter says, and again when it is back.
	server.Kill()
	got = f.request("edge a=x", options{Timeout: 20})
	assert.Equal(t, 200, got.Status)
	assert.True(t, got.FailureModeAllowed)
	assert.Contains(t, []string{"UNAVAILABLE", "DEADLINE_EXCEEDED"}, got.Code)
	assert.Equal(t, 500, f.request("edge a=x", options{Timeout: 20, FailureModeDeny: true}).Status)
	require.NoError(t, server.Restart(true))
	require.Eventually(t, func() bool { return f.request("edge b=y", patient).Code == "" }, 30*time.Second, 10*time.Millisecond)
	assert.Equal(t, 200, f.request("edge a=x", patient).Status, "the counters were in the process")
}

// A slowService answers late, as one whose store is away and which waits for it.
type slowService struct {
	*weirrls.Service
	delay    time.Duration
	canceled chan struct{}
}

func (s *slowService) ShouldRateLimit(ctx context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	select {
	case <-ctx.Done():
		s.canceled <- struct{}{}
	case <-time.After(s.delay):
	}
	return s.Service.ShouldRateLimit(ctx, r)
}

// TestFilter_deadline sees that a request passes after the 20 ms of Envoy's filter, and that the service hears of it.
func TestFilter_deadline(t *testing.T) {
	rules := parseRules(t, nodeRules)
	slow := &slowService{ours(t, rules, switches{}), time.Minute, make(chan struct{}, 2)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	ratelimitv3.RegisterRateLimitServiceServer(server, slow)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	f := newFilter(t, listener.Addr().String())
	// The first deadline is longer, because it includes the connecting.
	for _, timeout := range []int{1000, 20} {
		got := f.request("edge a=x", options{Timeout: timeout})
		assert.Equal(t, 200, got.Status)
		// The deadline of the service, which knows it, can be the first: then it resets the stream.
		assert.Contains(t, []string{"DEADLINE_EXCEEDED", "CANCELLED"}, got.Code)
		assert.True(t, got.FailureModeAllowed)
		assert.Greater(t, got.Took, float64(timeout)-5)
		assert.Less(t, got.Took, float64(timeout)+5000)
		select {
		case <-slow.canceled:
		case <-time.After(30 * time.Second):
			t.Fatal("the service has not heard of the deadline")
		}
	}
}
