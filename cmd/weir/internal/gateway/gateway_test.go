package gateway

import (
	"encoding/hex"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/testserver"

	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
)

// TestServer_HeaderTimeout has clients that begin a request and never send the rest of its header, over HTTP/1 and HTTP/2.
func TestServer_HeaderTimeout(t *testing.T) {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	settings, err := hex.DecodeString("000000" + "04" + "00" + "00000000")
	require.NoError(t, err)
	headers, err := hex.DecodeString("000001" + "01" + "01" + "00000001" + "82") // END_STREAM, but not END_HEADERS; ":method: GET"
	require.NoError(t, err)
	for name, text := range map[string]string{
		"HTTP/1": "GET / HTTP/1.1\r\nHost: a\r\n",
		"HTTP/2": preface + string(settings) + string(headers),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := gatewayconfig.Gateway{H2C: true}.WithDefaults()
				server := newServer(c, http.NotFoundHandler())
				client := testserver.ServePipes(t, server).Dial()
				began := time.Now()
				go io.WriteString(client, text)
				_, _ = io.Copy(io.Discard, client)
				assert.LessOrEqual(t, time.Since(began), c.ReadHeaderTimeout+pingTimeout)
				assert.GreaterOrEqual(t, time.Since(began), c.ReadHeaderTimeout)
			})
		})
	}
}
