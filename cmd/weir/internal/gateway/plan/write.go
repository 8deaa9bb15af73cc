package plan

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/proxy"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
)

// Write writes the way of r, in words.
func (p *Planner) Write(w io.Writer, r *http.Request) error {
	var b bytes.Buffer
	made := p.Plan(r)
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s %s%s from %s", r.Method, r.Host, r.URL.RequestURI(), made.Client)
	if made.Route < 0 {
		line("  %s", made.answer())
		_, err := w.Write(b.Bytes())
		return err
	}
	route := p.gateway.Routes[made.Route]
	line("  matches routes[%d], %s%s", made.Route, route.Match, wildcards(made.Request, route.Pattern().Wildcards()))
	if len(made.Policies) == 0 {
		line("  passes no policy")
	}
	for i, policy := range made.Policies {
		line("  %d. policy %s%s", i+1, policy.Name, when(policy.Global, ", of all routes"))
		for _, words := range policy.Words(p.file) {
			line("     %s", words)
		}
		for _, k := range policy.Keys {
			line("     %s", k.words())
		}
	}
	if route.Pipeline != "" {
		var words bytes.Buffer
		if err := p.file.Explain(&words, route.Pipeline); err != nil {
			return err
		}
		line("  then runs through the pipeline")
		for text := range strings.Lines(words.String()) {
			b.WriteString("    " + text)
		}
		for _, s := range made.Strategies {
			for _, k := range s.Keys {
				line("    of %s, %s", k.Limiter, k.words())
			}
		}
		made.writeRepeats(line)
	}
	upstream := p.gateway.Upstreams[route.Upstream]
	to := upstream.Addresses[0]
	sent, host := *made.URL, to.Host
	sent.Scheme, sent.Host = to.Scheme, to.Host
	sent.Path, sent.RawPath = to.Path+sent.Path, to.EscapedPath()+made.URL.EscapedPath()
	if upstream.KeepHost {
		host = r.Host
	}
	line("  goes to %s as %s %s, with the Host %s%s", route.Upstream, r.Method, sent.String(), host, others(len(upstream.Addresses)-1))
	if words := upstream.HealthWords(); words != "" {
		line("  %s", words)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// writeRepeats says if the strategies of the pipeline do not send the request again.
func (m *Plan) writeRepeats(line func(format string, args ...any)) {
	has := func(kind string) bool {
		return slices.ContainsFunc(m.Strategies, func(s Strategy) bool { return s.Kind == kind })
	}
	switch method := m.Request.Method; {
	case (has("retry") || has("hedging")) && !proxy.Repeatable(m.Request):
		line("  is sent once: a %s without an Idempotency-Key is not repeated", method)
	case has("hedging") && !gatewayconfig.Safe(method):
		line("  is not hedged: a %s is never sent twice at once", method)
	}
}

// answer says what the gateway answers by itself.
func (m *Plan) answer() string {
	words := fmt.Sprintf("is answered by the gateway with %d %s", m.Status, http.StatusText(m.Status))
	switch m.Status {
	case http.StatusBadRequest:
		return words + ": its path has a segment . or .., or a NUL"
	case http.StatusNotFound:
		return words + ": no route matches"
	case http.StatusMethodNotAllowed:
		if allowed := m.Header.Get("Allow"); allowed != "" {
			return words + ": the routes of the path are for " + allowed
		}
	}
	return words
}

// wildcards says what stands in the path for the wildcards of the route.
func wildcards(r *http.Request, names []string) (words string) {
	for i, name := range names {
		if i == 0 {
			words = ": "
		} else {
			words += ", "
		}
		words += name + " is " + strconv.Quote(r.PathValue(name))
	}
	return words
}

// words says which limiter of a partitioned limiter decides.
func (k Key) words() string {
	switch {
	case k.Err != nil:
		return fmt.Sprintf("the key %s is not known here: %v", k.Name, k.Err)
	case k.Value == "":
		return fmt.Sprintf("the key %s is empty: all requests without it share a limiter", k.Name)
	default:
		return fmt.Sprintf("the key %s is %q", k.Name, k.Value) + when(k.Empty != nil, ", in which "+strings.Join(k.Empty, " and ")+" is empty")
	}
}

// others says how many other addresses there are.
func others(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", or to its other address"
	default:
		return fmt.Sprintf(", or to one of its %d other addresses", n)
	}
}

func when(condition bool, text string) string {
	if !condition {
		return ""
	}
	return text
}
