package gatewayconfig

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// An Address is the URL of an upstream server: scheme, host and port, and a path that stands before the path of each
// request, without a slash at its end. It has no user, query or fragment.
type Address struct{ url.URL }

// UnmarshalText reads a URL such as http://10.0.0.7:8080.
func (a *Address) UnmarshalText(text []byte) error {
	const wanted = "must be a URL such as http://10.0.0.7:8080 or https://[2001:db8::7]"
	u, err := url.Parse(string(text))
	if err != nil {
		if !strings.Contains(string(text), "://") {
			return errors.New(wanted + ": http:// or https:// is missing")
		}
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return fmt.Errorf("%s: %w", wanted, err)
	}
	switch host := u.Hostname(); {
	case u.Host == "" && !strings.Contains(string(text), "://"):
		return errors.New(wanted + ": http:// or https:// is missing")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%s: the scheme is %q", wanted, u.Scheme)
	case host == "":
		return errors.New(wanted + ": the host is missing")
	case u.User != nil:
		return errors.New(wanted + ", without a user or a password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New(wanted + ", without a query or a fragment")
	case u.Port() != "" && !validPort(u.Port()), strings.HasSuffix(u.Host, ":"):
		return fmt.Errorf("%s: the port must be from 1 to 65535", wanted)
	case strings.Contains(host, ":") && !fileconfig.IsIPv6(host):
		return fmt.Errorf("%s: %q is no IPv6 address", wanted, host)
	case hasDotSegment(u.Path):
		return errors.New(wanted + ", without . or .. in the path")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	a.URL = *u
	return nil
}

// MarshalText is the opposite of UnmarshalText.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// String returns the URL.
func (a Address) String() string { return a.URL.String() }

// Dial returns the address to connect to, host:port.
func (a Address) Dial() string {
	port := a.Port()
	if port == "" {
		port = "80"
		if a.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(a.Hostname(), port)
}

func validPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

func hasDotSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}
