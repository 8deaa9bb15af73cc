package plan_test

import (
	"bytes"
	"flag"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/plan"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
	"github.com/weir-go/weir/reload"
)

var update = flag.Bool("update", false, "write testdata/plans.txt")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t testing.TB, text string) *reload.File {
	k := reload.NewKinds()
	gatewayconfig.Register(k, gatewayconfig.Runtime{})
	f, err := reload.Parse("f", []byte(text), k)
	require.NoError(t, err)
	return f
}

func example(t testing.TB) *reload.File {
	content, err := os.ReadFile("../../../testdata/gateway.yaml")
	require.NoError(t, err)
	return parse(t, strings.Replace(string(content), "jwks_file: /etc/weir/jwks.json, issuer: \"https://login.example.com\", required_claims: [exp], leeway: 30s", "unverified: true", 1))
}

// The plans of some requests for the example file. To write them again: go test ./internal/gateway/plan -update
func TestWrite(t *testing.T) {
	f := example(t)
	var b bytes.Buffer
	for _, text := range []string{
		`GET /orders`,
		`GET /orders/7?full=1 @10.0.0.5 "X-Forwarded-For=203.0.113.9, 10.0.0.9" X-Api-Key=abc`,
		`GET /orders/7 @203.0.113.9 X-Forwarded-For=198.51.100.1`,
		`POST /orders @unix X-Forwarded-For=2001:db8::1`,
		`GET https://USERS.example.com:8443/api/a%2Fb//c "Authorization=Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ."`,
		`GET /api Host=users.example.com`,
		`GET /healthz`,
		`DELETE /orders`,
		`GET /nowhere`,
		`GET /orders/../admin`,
		`CONNECT /orders`,
	} {
		r, err := plan.ParseRequest(text)
		require.NoError(t, err, text)
		b.WriteString("$ " + text + "\n")
		require.NoError(t, plan.Write(&b, f, r))
	}
	const golden = "testdata/plans.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, b.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), b.String())
}

func TestWrite_NotRepeated(t *testing.T) {
	f := parse(t, `gateway:
  upstreams: {u: {addresses: ["http://127.0.0.1:1/base"], keep_host: true}}
  routes: [{match: /, upstream: u, pipeline: outer}]
pipelines:
  outer: {strategies: [pipeline: {name: inner}, pipeline: {name: inner}]}
  inner: {strategies: [retry: {}, hedging: {}]}
`)
	for text, part := range map[string]string{
		"POST /":                   "is sent once: a POST without an Idempotency-Key is not repeated",
		"POST / Idempotency-Key=1": "is not hedged: a POST is never sent twice at once",
		"PUT /":                    "is not hedged: a PUT is never sent twice at once",
		"GET /a Host=h":            "goes to u as GET http://127.0.0.1:1/base/a, with the Host h\n",
	} {
		r, err := plan.ParseRequest(text)
		require.NoError(t, err)
		var b strings.Builder
		require.NoError(t, plan.Write(&b, f, r))
		assert.Contains(t, b.String(), part)
	}
}

func TestParseRequest(t *testing.T) {
	r, err := plan.ParseRequest(`  PURGE  /a%2Fb?c=d&e   @2001:db8::1 "X-A=b ""c""" x-a= Host=h:81 X-B=a=b `)
	require.NoError(t, err)
	assert.Equal(t, "PURGE", r.Method)
	assert.Equal(t, "/a%2Fb?c=d&e", r.URL.RequestURI())
	assert.Equal(t, "/a/b", r.URL.Path)
	assert.Equal(t, "h:81", r.Host)
	assert.Equal(t, "[2001:db8::1]:0", r.RemoteAddr)
	assert.Equal(t, http.Header{"X-A": {`b "c"`, ""}, "X-B": {"a=b"}}, r.Header)

	for text, message := range map[string]string{
		"":                           "a request is a method and a path, such as GET /orders",
		"GET":                        "a request is a method and a path",
		"G(T /":                      `invalid method "G(T"`,
		"GET orders":                 `parse "orders": invalid URI for request`,
		"GET /%zz":                   `invalid URL escape "%zz"`,
		"GET / @moon":                "@moon: must be an IP address",
		"GET / X-Api-Key:abc":        `"X-Api-Key:abc": must be a header such as X-Api-Key=abc`,
		"GET / A(=abc":               `malformed MIME header`,
		"GET / \"A=b c":              `quoted-field`,
		"GET / A=b\nc":               "must have no line breaks",
		"GET / User-Agent=Mozilla 5": `"5": must be a header such as X-Api-Key=abc`,
	} {
		_, err := plan.ParseRequest(text)
		assert.ErrorContains(t, err, message, text)
	}
}

// Any text is a request that can be explained, or has an error of one line.
func FuzzParseRequest(f *testing.F) {
	for _, text := range []string{
		"GET /", "GET //a", `POST http://h/a?b#c @::1 A="b"`, "OPTIONS *", "GET /a/../b", "GET /%2e%2e/%00", "GET /orders/7 Authorization=a.b.c",
		"GET http://users.example.com./api/x", "GET /orders/ Host=", "CONNECT a:1", "GET /?; @unix", "GET / Host=[::1]:9 X-Forwarded-For=,,",
	} {
		f.Add(text)
	}
	file := example(f)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := plan.ParseRequest(text)
		if err != nil {
			assert.NotContains(t, err.Error(), "\n")
			return
		}
		require.NoError(t, plan.Write(io.Discard, file, r))
	})
}
