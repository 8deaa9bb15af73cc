package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// newCertificate returns a certificate for 127.0.0.1 and its key in PEM form.
func newCertificate(t *testing.T, name string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// certificateIn returns the files in dir of a new certificate and its key.
func certificateIn(t *testing.T, dir, name string) (certificateFile, keyFile string) {
	t.Helper()
	certificateFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	certificate, key := newCertificate(t, name)
	require.NoError(t, os.WriteFile(certificateFile, certificate, 0o600))
	require.NoError(t, os.WriteFile(keyFile, key, 0o600))
	return certificateFile, keyFile
}

// streams is a server with what proxies get wrong.
func streams(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	switch r.URL.Path {
	case "/chat":
		c, _, err := rc.Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\nhello")
		line, _ := bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, line)
		_ = c.Close()
	case "/events":
		_ = rc.EnableFullDuplex()
		w.Header().Set("Content-Type", "text/event-stream")
		_ = rc.Flush()
		for line := range lines(r.Body) {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", line)
			_ = rc.Flush()
		}
	case "/trailers":
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Proto, body, r.Trailer.Get("X-Check"))
		w.Header().Set("X-Sum", "7")
	}
}

func lines(r io.Reader) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for s := bufio.NewScanner(r); s.Scan() && yield(s.Text()); {
		}
	}
}

// assertEvents checks that events come one by one, while the request is still being sent.
func assertEvents(t *testing.T, c *http.Client, url string) {
	t.Helper()
	in, out := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, in)
	require.NoError(t, err)
	resp, err := c.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	events := bufio.NewReader(resp.Body)
	for i := range 3 {
		_, err = fmt.Fprintf(out, "%d\n", i)
		require.NoError(t, err)
		event, err := events.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("data: %d\n", i), event)
		_, _ = events.ReadString('\n')
	}
	require.NoError(t, out.Close())
	rest, err := io.ReadAll(events)
	assert.NoError(t, err)
	assert.Empty(t, rest)
}

func TestGateway_Streams(t *testing.T) {
	p := startGateway(t, plainConfig(behind(t, streams), `
  h2c: true
  policies: {slots: {limiter: slots}}
  routes: [{match: /, upstream: server, policies: [slots], pipeline: attempts}]
`, `
limiters: {slots: {concurrency: {permit_limit: 1}}}
pipelines: {attempts: {strategies: [{retry: {max_retries: 2, handle: retryable}}, {hedging: {delay: 50ms, max_hedges: 1}}, {timeout: {timeout: 200ms}}]}}
`))
	t.Run("another protocol", func(t *testing.T) {
		c, err := net.Dial("tcp", p.listen)
		require.NoError(t, err)
		defer c.Close()
		_, err = io.WriteString(c, "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
		require.NoError(t, err)
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		b := bufio.NewReader(c)
		resp, err := http.ReadResponse(b, nil)
		require.NoError(t, err)
		_ = resp.Body.Close()
		time.Sleep(300 * time.Millisecond) // for longer than the timeout, which is for the beginning of the answer
		_, err = io.WriteString(c, "line\n")
		require.NoError(t, err)
		got, err := b.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "helloline\n", got)
		_ = c.Close()
		require.Eventually(t, func() bool { return len(p.accessLog()) == 1 }, patience, 10*time.Millisecond)
		line := p.accessLog()[0]
		assert.EqualValues(t, 101, line["status"])
		assert.EqualValues(t, 1, line["attempts"], "it is not hedged")
		assert.EqualValues(t, len("helloline\n"), line["bytes"], "what the client gets after its connection was switched")
	})
	t.Run("HTTP/2 without TLS", func(t *testing.T) {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetUnencryptedHTTP2(true)
		defer transport.CloseIdleConnections()
		assertEvents(t, &http.Client{Transport: transport, Timeout: patience}, p.url("/events"))
	})
}

func TestGateway_TLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificateFile, keyFile := certificateIn(t, dir, "first")
	p := startGateway(t, plainConfig(behind(t, streams), fmt.Sprintf(`
  tls: {certificate: %q, key: %q}
  routes: [{match: /, upstream: server}]
`, certificateFile, keyFile), ""))

	t.Run("HTTP/2", func(t *testing.T) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec // of the test itself
		defer transport.CloseIdleConnections()
		secure := &http.Client{Transport: transport, Timeout: patience}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+p.listen+"/trailers", io.MultiReader(strings.NewReader("body")))
		require.NoError(t, err)
		req.Trailer = http.Header{"X-Check": {"5"}}
		resp, err := secure.Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		assert.Equal(t, 2, resp.ProtoMajor)
		assert.Equal(t, "HTTP/1.1 body 5", string(body))
		assert.Equal(t, "7", resp.Trailer.Get("X-Sum"))

		assertEvents(t, secure, "https://"+p.listen+"/events")
	})
	name := func() string {
		c, err := tls.Dial("tcp", p.listen, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // of the test itself
		require.NoError(t, err)
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	assert.Equal(t, "first", name())
	require.NoError(t, os.WriteFile(keyFile, []byte("not a key"), 0o600))
	require.Eventually(t, func() bool { // the files are looked at when a client connects
		assert.Equal(t, "first", name())
		return strings.Contains(p.logged(), "the old one stays in force")
	}, patience, 100*time.Millisecond)
	_, body := get(t, p.adminURL("/ready"))
	assert.Contains(t, body, certificateFile)
	assert.Contains(t, body, `"ready": true`)
	certificateIn(t, dir, "second")
	require.Eventually(t, func() bool { return name() == "second" }, patience, 100*time.Millisecond)
}

// What the gateway answers by itself to a call of gRPC is an answer of gRPC, of its policies and in place of its upstreams.
func TestGateway_RejectsGRPC(t *testing.T) {
	t.Parallel()
	certificateFile, keyFile := certificateIn(t, t.TempDir(), "gateway")
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close() // its address refuses connections
	p := startGateway(t, plainConfig(gone.URL, fmt.Sprintf(`
  tls: {certificate: %q, key: %q}
  keys: {client: {address: {}}, api-key: {header: X-Api-Key}}
  policies: {per-client: {limiter: per-client, body: problem-json}, per-key: {limiter: per-key}}
  routes:
    - {match: /grpc.health.v1.Health/Check, upstream: server, policies: [per-client]}
    - {match: /grpc.health.v1.Health/List, upstream: server, policies: [per-key]}
    - {match: /grpc.health.v1.Health/Watch, upstream: server}
`, certificateFile, keyFile), `
limiters:
  per-client: {partitioned: {key: client, each: {fixed_window: {permit_limit: 1, window: 1h}}}}
  per-key: {partitioned: {key: api-key, each: {fixed_window: {permit_limit: 2, window: 1h}}}}
`))
	conn, err := grpc.NewClient(p.listen, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}))) //nolint:gosec // of the test itself
	require.NoError(t, err)
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)

	_, err = client.Check(t.Context(), &healthpb.HealthCheckRequest{})
	assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	var trailer metadata.MD
	_, err = client.Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.Trailer(&trailer))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	assert.Equal(t, "the quota of calls is exceeded", status.Convert(err).Message())
	assert.Len(t, status.Convert(err).Details(), 1)
	assert.NotEmpty(t, trailer.Get("grpc-retry-pushback-ms"))
	require.Eventually(t, func() bool { return len(p.accessLog()) == 2 }, patience, 10*time.Millisecond)
	var logged []any
	for _, line := range p.accessLog() {
		logged = append(logged, line["status"])
	}
	assert.ElementsMatch(t, []any{502.0, 429.0}, logged, "the answers themselves are 200")

	stream, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)

	var passed int
	for i := range 10 { // a made-up key before the real one
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", fmt.Sprint("made-up-", i), "x-api-key", "real")
		_, err = client.List(ctx, &healthpb.HealthListRequest{})
		if status.Code(err) == codes.Unavailable { // the upstream was asked
			passed++
		}
	}
	assert.LessOrEqual(t, passed, 2)
}
