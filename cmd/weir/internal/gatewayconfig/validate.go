package gatewayconfig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-go/weir/internal/validate"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// Validate checks the fields of g that are not in a type with a Validate method of its own, and compares its parts with
// each other.
func (g Gateway) Validate() error {
	var p validate.Problems
	if g.Listen != "" {
		fileconfig.CheckListen(&p, "Listen", g.Listen)
	}
	g.Common.Check(&p, cmp.Or(g.Listen, DefaultListen))
	if g.TLS != nil && g.H2C {
		p.Add("H2C", nil, "must not be set with {TLS}, which has HTTP/2 anyway")
	}
	if g.ClientAddressHeader != "" && !isToken(g.ClientAddressHeader) {
		p.Add("ClientAddressHeader", g.ClientAddressHeader, "must be the name of a header")
	}
	if g.Via != "" && !isToken(g.Via) {
		p.Add("Via", g.Via, "must be a name of letters, digits and -._, or off")
	}
	g.checkNames(&p)
	g.checkRoutes(&p)
	return p.Err("gateway")
}

// checkNames checks the names that the file chooses.
func (g Gateway) checkNames(p *validate.Problems) {
	for _, name := range slices.Sorted(maps.Keys(g.Policies)) {
		if name == "global" {
			p.Add(fmt.Sprintf("Policies[%s]", name), nil, "must have another name, which stands for all policies of global in events")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.Keys)) {
		for i, part := range g.Keys[name].Composite {
			if g.Keys[part].Composite != nil {
				p.Add(fmt.Sprintf("Keys[%s].Composite[%d]", name, i), part, "must not be composite: list what it is made of")
			}
		}
	}
	for i, name := range repeated(g.Global) {
		p.Add(fmt.Sprintf("Global[%d]", i), name, "must not be there twice")
	}
}

// repeated returns the texts that stand earlier in the list, by their position.
func repeated(all []string) map[int]string {
	found, seen := make(map[int]string), make(map[string]bool)
	for i, text := range all {
		if seen[text] {
			found[i] = text
		}
		seen[text] = true
	}
	return found
}

// Validate checks the addresses and what they need.
func (u Upstream) Validate() error {
	var p validate.Problems
	if len(u.Addresses) == 0 {
		p.Add("Addresses", nil, "must have at least one address")
	}
	plain, secure := false, false
	texts := make([]string, len(u.Addresses))
	for i, a := range u.Addresses {
		plain, secure = plain || a.Scheme == "http", secure || a.Scheme == "https"
		texts[i] = a.String()
	}
	for i, text := range repeated(texts) {
		p.Add(fmt.Sprintf("Addresses[%d]", i), text, "must not be there twice")
	}
	switch {
	case u.TLS != nil && !secure && plain:
		p.Add("TLS", nil, "must be left out: no address has https")
	case u.H2C && !plain && secure:
		p.Add("H2C", nil, "must be left out: no address has http")
	case plain && secure:
		p.Add("Addresses", nil, "must have the same scheme, http or https")
	}
	p.NotNegative("DialTimeout", u.DialTimeout)
	p.NotNegative("ResponseHeaderTimeout", u.ResponseHeaderTimeout)
	return p.Err("gateway")
}

// Validate checks that the certificate has its key.
func (t UpstreamTLS) Validate() error {
	var p validate.Problems
	if (t.Certificate == "") != (t.Key == "") {
		p.Add("", nil, "must have {Certificate} and {Key}, or neither")
	}
	return p.Err("gateway")
}

// Validate checks what does not need the limiter.
func (o Policy) Validate() error {
	var p validate.Problems
	p.NotNegative("Window", o.Window)
	p.NotNegative("Timeout", o.Timeout)
	if o.MaxWait < -1 {
		p.Add("MaxWait", o.MaxWait, "must be at least 0, or off")
	}
	if o.Status != 0 && (o.Status < 400 || o.Status > 599) {
		p.Add("Status", o.Status, "must be from 400 to 599")
	}
	if o.Window != 0 && o.Quota == 0 {
		p.Add("Window", nil, "must be left out without {Quota}")
	}
	if o.Shadow && o.MaxWait > 0 {
		p.Add("MaxWait", nil, "must be left out with {Shadow}, which never waits")
	}
	return p.Err("gateway")
}
