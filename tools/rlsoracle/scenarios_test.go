//go:build !js

package rlsoracle

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/weirrls"
)

// load returns the rules of a scenario.
func (s scenario) load(t *testing.T) []*domainRules {
	t.Helper()
	var files []string
	for _, file := range s.files {
		if strings.HasSuffix(file, ".yaml") {
			text, err := os.ReadFile(filepath.Join(otherFolder(t), filepath.FromSlash(file)))
			require.NoError(t, err)
			file = string(text)
		}
		files = append(files, file)
	}
	return parseRules(t, files...)
}

// run sends the requests of a script to a service, and compares the answers.
func run(t *testing.T, script string, ask asker) {
	t.Helper()
	for i, line := range strings.Split(strings.TrimSpace(script), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if wait, ok := strings.CutPrefix(line, "wait "); ok {
			d, err := time.ParseDuration(wait)
			require.NoError(t, err)
			time.Sleep(d)
			continue
		}
		call, want, ok := strings.Cut(line, " -> ")
		require.True(t, ok, line)
		response, err := ask(parseRequest(t, call))
		require.NoError(t, err, "line %d: %s", i+1, line)
		assert.Equal(t, want, outcome(response), "line %d: %s", i+1, line)
	}
}

// parseRequest reads what stands in a script before the arrow.
func parseRequest(t *testing.T, text string) *ratelimitv3.RateLimitRequest {
	t.Helper()
	words := strings.Fields(text)
	r := &ratelimitv3.RateLimitRequest{Domain: words[0]}
	for _, word := range words[1:] {
		d := &commonv3.RateLimitDescriptor{}
		pairs, hits, ok := strings.Cut(word, "+")
		if ok {
			n, err := strconv.ParseUint(hits, 10, 64)
			require.NoError(t, err)
			d.HitsAddend = wrapperspb.UInt64(n)
		}
		for pair := range strings.SplitSeq(pairs, ",") {
			key, value, ok := strings.Cut(pair, "=")
			require.True(t, ok, text)
			d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

// outcome returns an answer as it stands in a script.
func outcome(r *ratelimitv3.RateLimitResponse) string {
	words := []string{r.OverallCode.String()}
	for _, s := range r.Statuses {
		switch {
		case s.Code == ratelimitv3.RateLimitResponse_OVER_LIMIT:
			words = append(words, "over")
		case s.CurrentLimit != nil:
			words = append(words, strconv.FormatUint(uint64(s.LimitRemaining), 10))
		case s.LimitRemaining == 1<<32-1:
			words = append(words, "unlimited")
		default:
			words = append(words, "none")
		}
	}
	return strings.Join(words, " ")
}

// TestScenarios checks both services by the other server's integration tests.
func TestScenarios(t *testing.T) {
	addr, flush := onMiniredis(t)
	other := newOtherServer(t, addr, flush, switches{})
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			rules := s.load(t)
			require.NoError(t, other.use(rules))
			t.Run("other", func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					run(t, s.script, func(r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
						a := other.ask(time.Now(), proto.CloneOf(r))
						require.Nil(t, a.panicked)
						return other.expected(time.Now(), r, a.response), a.err
					})
				})
			})
			t.Run("ours", func(t *testing.T) {
				inBubble(t, func(t *testing.T) { run(t, s.script, asking(ours(t, rules, switches{}))) })
			})
			t.Run("exact", func(t *testing.T) {
				script := s.exact
				if script == "" {
					script = s.script
				}
				inBubble(t, func(t *testing.T) { run(t, script, asking(exact(t, rules))) })
			})
		})
	}
}

// exact returns our service with exact limits instead of windows: fixed windows of weir.
func exact(t *testing.T, rules []*domainRules) *weirrls.Service {
	t.Helper()
	var domains []weirrls.Domain
	for _, d := range rules {
		domain := d.ours()
		exactly(t, domain.Descriptors)
		domains = append(domains, domain)
	}
	compiled, err := weirrls.NewRules(domains...)
	require.NoError(t, err)
	service, err := weirrls.NewService(compiled, nil)
	require.NoError(t, err)
	return service
}

var durations = map[weirrls.Unit]time.Duration{weirrls.Second: time.Second, weirrls.Minute: time.Minute, weirrls.Hour: time.Hour, weirrls.Day: 24 * time.Hour}

func exactly(t *testing.T, descriptors []weirrls.Descriptor) {
	for _, d := range descriptors {
		exactly(t, d.Descriptors)
		// A limit of 0 stays as it is: no limiter has no permits.
		if d.Limit == nil || d.Limit.Window == nil || d.Limit.Window.RequestsPerUnit == 0 {
			continue
		}
		w := d.Limit.Window
		factory := limiter.FactoryFor[string](limiter.FixedWindowOptions{PermitLimit: int(w.RequestsPerUnit), Window: durations[w.Unit]})
		perKey, err := weirrls.PerKey(factory, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, perKey.Close()) })
		d.Limit.Window, d.Limit.Partitioned = nil, perKey
	}
}

// TestScenario_reload is the other server's test of new rules: they hold from then on, and counters stay.
func TestScenario_reload(t *testing.T) {
	before := scenario{files: []string{"test/integration/runtime/current/ratelimit/config/basic.yaml"}}.load(t)
	after := append(before, scenario{files: []string{"test/integration/runtime/current/ratelimit/reload.yaml"}}.load(t)...)
	inBubble(t, func(t *testing.T) {
		service := ours(t, before, switches{})
		run(t, `reload block=foo -> OK none
			basic one_per_minute=a -> OK 0
			reload key1=foo -> OK none`, asking(service))
		var domains []weirrls.Domain
		for _, d := range after {
			domains = append(domains, d.ours())
		}
		rules, err := weirrls.NewRules(domains...)
		require.NoError(t, err)
		service.SetRules(rules)
		run(t, `reload block=foo -> OVER_LIMIT over
			basic one_per_minute=a -> OVER_LIMIT over
			reload key1=foo -> OK 49`, asking(service))
	})
}
