package weirgrpc

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
)

func requestWith(values ...string) *Request {
	return &Request{Method: unaryMethod, ctx: metadata.NewIncomingContext(context.Background(), metadata.Pairs(values...))}
}

func TestKeys(t *testing.T) {
	r := requestWith("x-key", "first", "twice", "first", "twice", "second", "data-bin", "\x00\xff", "huge", strings.Repeat("a", 1<<20))
	for want, key := range map[string]Key{
		"first":     Metadata("X-Key"),
		"\x00\xff":  Metadata("data-bin"),
		"":          Metadata("missing"),
		unaryMethod: Method(),
		"subject":   Subject(func(*Request) string { return "subject" }),
		"5:first0:": Composite(Metadata("x-key"), Metadata("missing")),
	} {
		assert.Equal(t, want, key(r))
	}
	assert.Equal(t, AmbiguousKey, Metadata("Twice")(r))
	assert.Equal(t, AmbiguousKey, Composite(Metadata("x-key"), Metadata("twice"))(r))
	assert.Empty(t, r.Metadata("twice"))
	assert.Equal(t, "first", r.Metadata("X-Key"))
	assert.Empty(t, r.Metadata("missing"))
	assert.Empty(t, Metadata("x-key")(&Request{ctx: context.Background()}), "no metadata at all")
	digest := Metadata("huge")(r)
	assert.Len(t, digest, len("sha256:")+64)
	assert.NotEqual(t, digest, Metadata("k")(requestWith("k", digest)))
	assert.Nil(t, RequestFrom(context.Background()))
}

// Calls with the same key share a limiter.
func TestKeys_ApartFromEachOther(t *testing.T) {
	l := keyedLimits(t, 1)
	call := func(values ...string) codes.Code {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(values...))
		_, _, err := callUnary(ctx, l, unaryMethod, answer)
		return status.Code(err)
	}
	assert.Equal(t, codes.OK, call("x-api-key", "alice"))
	assert.Equal(t, codes.ResourceExhausted, call("x-api-key", "alice"))
	assert.Equal(t, codes.InvalidArgument, call("x-api-key", "eve", "x-api-key", "alice"))
	assert.Equal(t, codes.InvalidArgument, call("x-api-key", "alice", "x-api-key", "alice"))
	assert.Equal(t, codes.OK, call("x-api-key", "bob"))
	assert.Equal(t, codes.OK, call())
	assert.Equal(t, codes.ResourceExhausted, call())
}

func TestPeerAddress(t *testing.T) {
	behind := weir.Must(PeerAddress(&AddressOptions{Trusted: weir.Must(ParseTrusted("10.0.0.0/8"))}))
	rfc7239 := weir.Must(PeerAddress(&AddressOptions{Trusted: weir.Must(ParseTrusted("10.0.0.0/8")), Header: "Forwarded"}))
	unix := weir.Must(PeerAddress(&AddressOptions{TrustUnix: true, IPv6Bits: 128}))
	plain := weir.Must(PeerAddress(nil))
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 4711} }
	socket := &net.UnixAddr{Name: "@", Net: "unix"}
	const forwardedFor = "x-forwarded-for"
	for _, c := range []struct {
		key  Key
		peer net.Addr
		md   []string
		want string
	}{
		{plain, tcp("192.0.2.1"), []string{forwardedFor, "198.51.100.7"}, "192.0.2.1"},
		{plain, tcp("2001:db8::1"), nil, "2001:db8::/64"},
		{plain, socket, []string{forwardedFor, "198.51.100.7"}, "unknown"},
		{plain, nil, nil, "unknown"},
		{plain, textAddr("192.0.2.1:80"), nil, "192.0.2.1"},
		{plain, textAddr("bufconn"), nil, "unknown"},
		{behind, tcp("10.0.0.1"), []string{forwardedFor, "203.0.113.1, 198.51.100.7", forwardedFor, "10.0.0.2"}, "198.51.100.7"},
		{rfc7239, tcp("10.0.0.1"), []string{"forwarded", `for="[2001:db8::1]:80"`}, "2001:db8::/64"},
		{unix, socket, []string{forwardedFor, "2001:db8::1"}, "2001:db8::1"},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(c.md...))
		if c.peer != nil {
			ctx = peer.NewContext(ctx, &peer.Peer{Addr: c.peer})
		}
		assert.Equal(t, c.want, c.key(&Request{ctx: ctx}), "%v %.40v", c.peer, c.md)
	}
	assert.Equal(t, "unknown", plain(&Request{ctx: peer.NewContext(t.Context(), &peer.Peer{})}))

	_, err := PeerAddress(&AddressOptions{IPv6Bits: 129, Header: "a b"})
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	_, err = ParseTrusted("10.0.0.0/33")
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
}

type textAddr string

func (a textAddr) Network() string { return "tcp" }
func (a textAddr) String() string  { return string(a) }
