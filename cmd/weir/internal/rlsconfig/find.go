package rlsconfig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/transport/weirrls"
)

// Grammar says how a descriptor is written for [ParseRequest].
const Grammar = `DOMAIN: KEY=VALUE[, KEY=VALUE]...`

// ParseRequest returns the request with one descriptor that a text such as "edge: user=alice, path=/reports" stands for.
// Values have no commas; spaces around them are left out.
func ParseRequest(text string) (*ratelimitv3.RateLimitRequest, error) {
	domain, rest, ok := strings.Cut(text, ":")
	if domain = strings.TrimSpace(domain); !ok || domain == "" {
		return nil, errors.New("must begin with the domain and a colon")
	}
	d := &commonv3.RateLimitDescriptor{}
	for part := range strings.SplitSeq(rest, ",") {
		key, value, _ := strings.Cut(part, "=")
		if key = strings.TrimSpace(key); key == "" {
			return nil, fmt.Errorf("each entry must be KEY=VALUE, got %q", strings.TrimSpace(part))
		}
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: strings.TrimSpace(value)})
	}
	return &ratelimitv3.RateLimitRequest{Domain: domain, Descriptors: []*commonv3.RateLimitDescriptor{d}}, nil
}

// Find writes which rule of the file is for the descriptor of a request, and what its limit does.
func Find(w io.Writer, f *reload.File, r *ratelimitv3.RateLimitRequest) error {
	c, ok := reload.SectionOf[RLS](f, Field)
	if !ok {
		return fmt.Errorf("the file has no %s", Field)
	}
	c = c.WithDefaults()
	path, d, err := c.find(r)
	if err != nil {
		return err
	}
	entries := make([]string, len(r.Descriptors[0].Entries))
	for i, e := range r.Descriptors[0].Entries {
		entries[i] = e.Key + "=" + e.Value
	}
	text := fmt.Sprintf("%s: %s\n  no rule is for it: it passes\n", r.Domain, strings.Join(entries, ", "))
	if path != nil {
		text = fmt.Sprintf("%s: %s\n  rule: %s\n  limit: %s\n", r.Domain, strings.Join(entries, ", "), strings.Join(path, " / "), strings.Join(c.Words(f, d), "; "))
	}
	_, err = io.WriteString(w, text)
	return err
}

// find returns the rule for the descriptor of the request. The service itself finds it: all limits are replaced by ones
// that bear a number and reject nothing.
func (c RLS) find(r *ratelimitv3.RateLimitRequest) (path []string, d Descriptor, err error) {
	type rule struct {
		path []string
		d    Descriptor
	}
	byName := make(map[string]rule)
	rules, err := c.rules(func(path []string, _ bool, d Descriptor) (*weirrls.Limit, error) {
		name := fmt.Sprint(len(byName))
		byName[name] = rule{path, d}
		return &weirrls.Limit{Name: name, Window: &weirrls.Window{RequestsPerUnit: 1, Unit: weirrls.Year}}, nil
	})
	if err != nil {
		return nil, d, err
	}
	service, err := weirrls.NewService(rules, nil)
	if err != nil {
		return nil, d, err
	}
	answer, err := service.ShouldRateLimit(context.Background(), r)
	if err != nil {
		return nil, d, err
	}
	found := byName[answer.GetStatuses()[0].GetCurrentLimit().GetName()]
	return found.path, found.d, nil
}
