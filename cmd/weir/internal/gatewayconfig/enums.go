package gatewayconfig

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/transport/weirhttp"
)

// Body is the form of the answer to a request that is rejected.
type Body uint8

// The forms of answers.
const (
	// DefaultBody is what a file leaves out.
	DefaultBody Body = iota
	// PlainBody is one line of text, see [weirhttp.PlainText].
	PlainBody
	// ProblemBody is problem details, see [weirhttp.ProblemJSON].
	ProblemBody
)

var bodyTexts = textenum.Texts[Body]{Package: "gateway", Type: "Body", Texts: []string{
	DefaultBody: "default", PlainBody: "plain", ProblemBody: "problem-json",
}}

// String returns the text form, or Body(n) for any other number.
func (b Body) String() string { return bodyTexts.String(b) }

// MarshalText implements [encoding.TextMarshaler].
func (b Body) MarshalText() ([]byte, error) { return bodyTexts.Marshal(b) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *Body) UnmarshalText(text []byte) error { return bodyTexts.Unmarshal(b, text) }

// Write returns the function that writes such an answer.
func (b Body) Write() weirhttp.Body {
	if b == ProblemBody {
		return weirhttp.ProblemJSON
	}
	return weirhttp.PlainText
}

// Output is where a log goes.
type Output uint8

// The outputs.
const (
	Stdout Output = iota
	Stderr
)

var outputTexts = textenum.Texts[Output]{Package: "gateway", Type: "Output", Texts: []string{Stdout: "stdout", Stderr: "stderr"}}

// String returns the text form, or Output(n) for any other number.
func (o Output) String() string { return outputTexts.String(o) }

// MarshalText implements [encoding.TextMarshaler].
func (o Output) MarshalText() ([]byte, error) { return outputTexts.Marshal(o) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *Output) UnmarshalText(text []byte) error { return outputTexts.Unmarshal(o, text) }

// A Network is a network or an address of trusted proxies. The zero Network stands for all peers of Unix sockets.
type Network struct{ netip.Prefix }

const unixNetwork = "unix"

var errNetwork = errors.New("must be a network such as 10.0.0.0/8, an address, or unix")

// UnmarshalText reads a network such as 10.0.0.0/8, an address, or "unix".
func (n *Network) UnmarshalText(text []byte) error {
	if string(text) == unixNetwork {
		n.Prefix = netip.Prefix{}
		return nil
	}
	prefixes, err := weirhttp.ParseTrusted(string(text))
	if err != nil {
		return fmt.Errorf("%w, got %.60q", errNetwork, string(text))
	}
	n.Prefix = prefixes[0]
	return nil
}

// MarshalText is the opposite of UnmarshalText.
func (n Network) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// String returns the network as a file can have it.
func (n Network) String() string {
	if !n.IsValid() {
		return unixNetwork
	}
	return n.Prefix.String()
}
