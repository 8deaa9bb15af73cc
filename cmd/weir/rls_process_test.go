package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

const (
	over = ratelimitv3.RateLimitResponse_OVER_LIMIT
	okay = ratelimitv3.RateLimitResponse_OK
)

// startRLS starts weir rls with a configuration.
func startRLS(t *testing.T, config string, args ...string) *program {
	t.Helper()
	p := newProgram(t, "the rate limit service is ready", config)
	return p.start(append([]string{"rls", "-config", p.file, "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0"}, args...)...)
}

// dial connects to a gRPC address.
func dial(t *testing.T, target string, secure credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(target, grpc.WithTransportCredentials(secure))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// An envoy asks as Envoy's filter does.
type envoy struct {
	t    *testing.T
	conn *grpc.ClientConn
}

func (p *program) envoy() *envoy {
	p.t.Helper()
	return &envoy{p.t, dial(p.t, "passthrough:///"+p.listen, insecure.NewCredentials())}
}

// requestOf returns a request whose descriptor has entries such as "path=/x".
func requestOf(domain string, entries ...string) *ratelimitv3.RateLimitRequest {
	d := &commonv3.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return &ratelimitv3.RateLimitRequest{Domain: domain, Descriptors: []*commonv3.RateLimitDescriptor{d}}
}

// ask returns the answer to a request.
func (e *envoy) ask(domain string, entries ...string) *ratelimitv3.RateLimitResponse {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	answer, err := ratelimitv3.NewRateLimitServiceClient(e.conn).ShouldRateLimit(ctx, requestOf(domain, entries...))
	require.NoError(e.t, err)
	return answer
}

// code returns the overall code of the answer.
func (e *envoy) code(domain string, entries ...string) ratelimitv3.RateLimitResponse_Code {
	e.t.Helper()
	return e.ask(domain, entries...).GetOverallCode()
}

// health returns what the health service says of a service.
func (e *envoy) health(name string) grpc_health_v1.HealthCheckResponse_ServingStatus {
	e.t.Helper()
	answer, err := grpc_health_v1.NewHealthClient(e.conn).Check(e.t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
	require.NoError(e.t, err)
	return answer.GetStatus()
}

// smallRLS has a limit of two an hour for each address, and the given fields.
func smallRLS(fields string) string {
	return `
rls:
` + fields + `
  domains:
    - domain: edge
      descriptors:
        - {key: remote_address, rate_limit: {requests_per_unit: 2, unit: hour}}
        - {key: path, rate_limit: {limiter: per-path}}
        - {key: all, rate_limit: {limiter: all}}
limiters:
  per-path: {partitioned: {key: descriptor, max_partitions: 1000, each: {token_bucket: {token_limit: 1, tokens_per_period: 1, replenishment_period: 1h}}}}
  all: {fixed_window: {permit_limit: 3, window: 1h}}
`
}

func TestRLS(t *testing.T) {
	t.Parallel()
	p := startRLS(t, smallRLS("  http: 127.0.0.1:0\n  headers: true\n  body: problem-json"))
	e := p.envoy()
	for _, want := range []ratelimitv3.RateLimitResponse_Code{okay, okay, over} {
		require.Equal(t, want, e.code("edge", "remote_address=1.2.3.4"))
	}
	assert.Equal(t, okay, e.code("edge", "remote_address=1.2.3.5"))
	for _, want := range []ratelimitv3.RateLimitResponse_Code{okay, over} {
		assert.Equal(t, want, e.code("edge", "path=/a"))
		assert.Equal(t, want, e.code("edge", "path=/b"), "each value has a limiter of its own")
	}
	for _, value := range []string{"a", "b", "c"} {
		assert.Equal(t, okay, e.code("edge", "all="+value))
	}
	answer := e.ask("edge", "all=d")
	assert.Equal(t, over, answer.GetOverallCode(), "a limiter that is not partitioned is shared by all values")
	assert.Contains(t, string(answer.GetRawBody()), "problem-types#quota-exceeded")
	assert.EqualValues(t, 3, answer.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit())
	assert.Equal(t, okay, e.code("nowhere", "all=d"))

	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		assert.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, e.health(name), name)
	}
	stream, err := grpc_reflection_v1.NewServerReflectionClient(e.conn).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.Equal(t, codes.Unimplemented, status.Code(err), "reflection only if the file says so")

	resp, body := get(t, "http://"+p.http+"/healthcheck")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "OK", body)
	resp, body = get(t, p.adminURL("/metrics"))
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Regexp(t, `weir_rate_limiter_requests_total\{[^}]*remote_address[^}]*\} `, body, "metrics for each rule")
	resp, body = get(t, p.adminURL("/ready"))
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, body, `"ready": true`)
}

// Requests that a filter does not send get an error of their own, and the service goes on.
func TestRLS_Hostile(t *testing.T) {
	t.Parallel()
	p := startRLS(t, smallRLS("  reflection: true"))
	e := p.envoy()
	service := ratelimitv3.NewRateLimitServiceClient(e.conn)
	many := requestOf("edge")
	many.Descriptors = nil
	for i := range 1000 {
		many.Descriptors = append(many.Descriptors, requestOf("edge", fmt.Sprintf("path=%d", i)).Descriptors...)
	}
	// One more, with few bytes. Without a bound, a request of 256 KiB would take some 200 MiB.
	tooMany := &ratelimitv3.RateLimitRequest{Domain: "edge", Descriptors: make([]*commonv3.RateLimitDescriptor, 1001)}
	for i := range tooMany.Descriptors {
		tooMany.Descriptors[i] = &commonv3.RateLimitDescriptor{}
	}
	for name, c := range map[string]struct {
		request *ratelimitv3.RateLimitRequest
		want    codes.Code
	}{
		"no domain":        {requestOf("", "path=/"), codes.InvalidArgument},
		"no descriptors":   {&ratelimitv3.RateLimitRequest{Domain: "edge"}, codes.InvalidArgument},
		"no entries":       {requestOf("edge"), codes.OK},
		"empty key":        {requestOf("edge", "=x"), codes.OK},
		"more keys":        {many, codes.OK},
		"too many keys":    {tooMany, codes.InvalidArgument},
		"long value":       {requestOf("edge", "path="+strings.Repeat("x", 100_000)), codes.OK},
		"too long":         {requestOf("edge", "path="+strings.Repeat("x", 300_000)), codes.ResourceExhausted},
		"control letters":  {requestOf("edge\x00\n", "path=\x00\x1b[31m"), codes.OK},
		"a null in a list": {&ratelimitv3.RateLimitRequest{Domain: "edge", Descriptors: []*commonv3.RateLimitDescriptor{{Entries: []*commonv3.RateLimitDescriptor_Entry{{}}}}}, codes.OK},
	} {
		_, err := service.ShouldRateLimit(t.Context(), c.request)
		assert.Equal(t, c.want, status.Code(err), "%s: %v", name, err)
	}
	assert.Equal(t, okay, e.code("edge", "all=1"))
	stream, err := grpc_reflection_v1.NewServerReflectionClient(e.conn).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
	}))
	services, err := stream.Recv()
	require.NoError(t, err)
	assert.Contains(t, services.String(), "envoy.service.ratelimit.v3.RateLimitService")
	require.NoError(t, stream.CloseSend())
}

// A store that is away is no error: its policy answers, without waiting for it.
func TestRLS_StoreAway(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for outage, want := range map[string]ratelimitv3.RateLimitResponse_Code{"fail_open": okay, "fail_closed": over} {
		p := startRLS(t, fmt.Sprintf(`
rls:
  stores: {shared: {redis: "redis://%s"}}
  counters: {store: shared, outage: %s}
  domains:
    - domain: edge
      descriptors:
        - {key: exact, rate_limit: {requests_per_unit: 2, unit: hour}}
        - {key: envoy, rate_limit: {requests_per_unit: 2, unit: hour, mode: envoy}}
`, closed.Addr(), outage))
		e := p.envoy()
		for range 5 {
			assert.Equal(t, want, e.code("edge", "exact=1"), outage)
			assert.Equal(t, want, e.code("edge", "envoy=1"), outage)
		}
		_, body := get(t, p.adminURL("/ready"))
		assert.Contains(t, body, `"shared"`)
		assert.Contains(t, body, `"available": false`)
		for line := range strings.Lines(p.logged()) {
			assert.True(t, json.Valid([]byte(line)), "the client of Redis has no log of its own: %s", line)
		}
	}
}

func TestRLS_TLS(t *testing.T) {
	t.Parallel()
	certificateFile, keyFile := certificateIn(t, t.TempDir(), "first")
	clientFile, clientKeyFile := certificateIn(t, t.TempDir(), "envoy")
	p := startRLS(t, smallRLS(fmt.Sprintf("  tls: {certificate: %q, key: %q, client_ca: %q}", certificateFile, keyFile, clientFile)))

	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(read(t, certificateFile))))
	pair, err := tls.LoadX509KeyPair(clientFile, clientKeyFile)
	require.NoError(t, err)
	with := func(c *tls.Config) *envoy {
		return &envoy{t, dial(t, "passthrough:///"+p.listen, credentials.NewTLS(c))}
	}
	known := with(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "127.0.0.1"})
	assert.Equal(t, okay, known.code("edge", "path=/"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	unknown := with(&tls.Config{RootCAs: roots, ServerName: "127.0.0.1"})
	_, err = ratelimitv3.NewRateLimitServiceClient(unknown.conn).ShouldRateLimit(ctx, requestOf("edge", "path=/"))
	require.Error(t, err, "a client without a certificate")
}

func TestRLS_Flags(t *testing.T) {
	for _, c := range []struct {
		args []string
		text string
	}{
		{nil, "-config must name a file, or -ratelimit-config a directory"},
		{[]string{"weir.yaml"}, "the file must follow -config: weir rls -config weir.yaml"},
		{[]string{"-config", "a", "b"}, `takes no arguments, found "b"`},
		{[]string{"-config", "a", "-print"}, "-print must not be set without -ratelimit-config"},
		{[]string{"-config", "a", "-print", "-merge-domains", "-mode", "envoy"}, "-mode must not be set without -ratelimit-config"},
		{[]string{"-ratelimit-config", "a", "-redis", "r", "-postgres", "p"}, "-redis and -postgres must not both be set"},
		{[]string{"-ratelimit-config", "a", "-config", "b", "-redis", "r"}, "-redis and -postgres must not be set with -config: set counters.store in the file"},
		{[]string{"-ratelimit-config", "a", "-mode", "fast"}, `invalid value "fast" for flag -mode: must be exact or envoy`},
		{[]string{"-ratelimit-config", "a", "-redis", "r"}, "weir rls: -redis must be a URL that begins with redis://"},
		{[]string{"-ratelimit-config", "a", "-postgres", "http://p"}, "weir rls: -postgres must be a URL that begins with postgres://"},
		{[]string{"-ratelimit-config", "/does/not/exist"}, "/does/not/exist"},
	} {
		r := weir("", append([]string{"rls"}, c.args...)...)
		assert.Equal(t, 2, r.status, c.args)
		assert.Contains(t, r.err, c.text)
	}
	r := weir("", "rls", "-h")
	assert.Equal(t, 0, r.status)
	assert.Contains(t, r.out, "-ratelimit-config directory")
	assert.NotContains(t, r.out, "default default")
}
