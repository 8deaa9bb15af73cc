package weirrls

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// named returns a rule without a limiter, whose limit has a name.
func named(key, value, name string, further ...Descriptor) Descriptor {
	d := Descriptor{Key: key, Value: value, Descriptors: further}
	if name != "" {
		d.Limit = &Limit{Name: name, Unlimited: true}
	}
	return d
}

// matchName returns the name of the limit for a descriptor, or "".
func matchName(t testing.TB, rules *Rules, d *common.RateLimitDescriptor) string {
	r, _ := rules.domains["edge"].match(d)
	if r == nil {
		return ""
	}
	require.NotNil(t, r.limit)
	return r.limit.Name
}

func edge(t testing.TB, descriptors ...Descriptor) *Rules {
	t.Helper()
	rules, err := NewRules(Domain{Name: "edge", Descriptors: descriptors})
	require.NoError(t, err)
	return rules
}

func TestMatch(t *testing.T) {
	rules := edge(t,
		named("path", "/a*", "prefix"),
		named("path", "/*/b", "middle"),
		named("path", "/a/b", "exact"),
		named("path", "", "any"),
		named("path", "/a*c*d", "never: the first pattern matches, too"),
		named("tenant", "", "tenant", named("user", "", "user"), named("user", "root", "")),
		named("a_b", "", "joined"),
		named("x", "y_z", "underscore"),
		named("st*r", "", "star in the key"),
		named("only", "value", "value"),
	)
	for _, tt := range []struct {
		want       string
		descriptor *common.RateLimitDescriptor
	}{
		{"exact", describe("path", "/a/b")},
		{"prefix", describe("path", "/a")},
		{"prefix", describe("path", "/a/c/d")},
		{"middle", describe("path", "/c/b")},
		{"middle", describe("path", "//b")},
		{"any", describe("path", "/b")},
		{"any", describe("path", "")},
		{"prefix", describe("path", "/a*")},
		{"tenant", describe("tenant", "t")},
		{"user", describe("tenant", "t", "user", "u")},
		{"", describe("tenant", "t", "user", "root")}, // the rule with the value has no limit
		{"", describe("tenant", "t", "user", "u", "more", "m")},
		{"", describe("tenant", "t", "other", "u")},
		{"", describe("user", "u")},
		{"", describe()},
		{"", nil},
		// By joined names, as envoyproxy/ratelimit has it:
		{"joined", describe("a", "b")},
		{"joined", describe("a_b", "whatever")},
		{"underscore", describe("x_y", "z")},
		{"star in the key", describe("star", "r")},
		{"", describe("star", "value")},
		{"value", describe("only_value", "")},
		{"", describe("only", "")},
	} {
		assert.Equal(t, tt.want, matchName(t, rules, tt.descriptor), "%v", tt.descriptor)
	}
}

func TestMatch_Patterns(t *testing.T) {
	for _, tt := range []struct {
		pattern, value string
		want           bool
	}{
		{"*", "", true}, {"*", "anything", true}, {"**", "", true},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*a", "aba", true}, {"a*b*a", "aa", false},
		{"*b*", "abc", true}, {"*b*", "ac", false}, {"*ab*ab*", "abab", true}, {"*ab*ab*", "aab", false},
		{"a*bc*cd", "abcd", false}, {"a*bc*cd", "abccd", true}, {"ä*", "ä\xff", true},
	} {
		rules := edge(t, named("k", tt.pattern, "found"))
		assert.Equal(t, tt.want, matchName(t, rules, describe("k", tt.value)) != "", "%q %q", tt.pattern, tt.value)
	}
}

// naiveMatch is written as envoyproxy/ratelimit describes it, and as slowly as one likes.
func naiveMatch(rules []Descriptor, entries []*common.RateLimitDescriptor_Entry) *Descriptor {
	find := func(rules []Descriptor, entry *common.RateLimitDescriptor_Entry) *Descriptor {
		name := entry.GetKey() + "_" + entry.GetValue()
		for i := range rules {
			if ruleName(rules[i].Key, rules[i].Value) == name {
				return &rules[i]
			}
		}
		for i := range rules {
			rule := ruleName(rules[i].Key, rules[i].Value)
			parts := strings.Split(rule, "*")
			for i, part := range parts {
				parts[i] = regexp.QuoteMeta(part)
			}
			if len(parts) > 1 && regexp.MustCompile(`(?s)\A`+strings.Join(parts, "(?:.|[^.])*")+`\z`).MatchString(name) {
				return &rules[i]
			}
		}
		for i := range rules {
			if ruleName(rules[i].Key, rules[i].Value) == entry.GetKey() {
				return &rules[i]
			}
		}
		return nil
	}
	var at *Descriptor
	for _, entry := range entries {
		if at = find(rules, entry); at == nil {
			return nil
		}
		rules = at.Descriptors
	}
	if at == nil || at.Limit == nil {
		return nil
	}
	return at
}

// randomText returns a short text of few letters, so that texts often match.
func randomText(random *rand.Rand, alphabet string, most int) string {
	var b strings.Builder
	for range random.IntN(most + 1) {
		b.WriteByte(alphabet[random.IntN(len(alphabet))])
	}
	return b.String()
}

// randomRules returns rules that NewRules accepts.
func randomRules(random *rand.Rand, depth int) (rules []Descriptor) {
	names := make(map[string]bool)
	for range random.IntN(6) {
		d := Descriptor{Key: "a" + randomText(random, "ab_*", 2), Value: randomText(random, "ab_**", 4)}
		name := ruleName(d.Key, d.Value)
		if names[name] {
			continue
		}
		names[name] = true
		d.ShareThreshold = strings.Contains(name, "*") && random.IntN(2) == 0
		if random.IntN(4) > 0 {
			d.Limit = &Limit{Unlimited: true, Name: "l"}
		}
		if depth > 1 {
			d.Descriptors = randomRules(random, depth-1)
		}
		rules = append(rules, d)
	}
	return rules
}

func FuzzMatch(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed, "a_b", "ba*")
	}
	f.Fuzz(func(t *testing.T, seed uint64, key, value string) {
		random := rand.New(rand.NewPCG(seed, 1))
		descriptors := randomRules(random, 3)
		rules := edge(t, descriptors...)
		d := rules.domains["edge"]
		for range 50 {
			entries := describe(key, value).Entries
			if random.IntN(8) > 0 {
				entries = nil
				for range random.IntN(4) {
					entry := describe("a"+randomText(random, "ab_*", 2), randomText(random, "ab_*", 5))
					entries = append(entries, entry.Entries...)
				}
			}
			want := naiveMatch(descriptors, entries)
			got, key := d.match(&common.RateLimitDescriptor{Entries: entries})
			require.Equal(t, want != nil, got != nil, "%v in %v", entries, descriptors)
			if want != nil {
				require.Equal(t, ruleName(want.Key, want.Value), got.name)
				require.LessOrEqual(t, len(d.counterKey(key)), 128)
			}
		}
	})
}

// TestKeyOf_Unambiguous: what a client puts into a value never makes the key of another descriptor.
func TestKeyOf_Unambiguous(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	seen := make(map[string]string)
	for range 200_000 {
		var entries []string
		for range 1 + random.IntN(3) {
			entries = append(entries, randomText(random, `a,=\`, 3), randomText(random, `a,=\`, 3))
		}
		key := keyOf(describe(entries...))
		plain := strings.Join(entries, "\x00")
		if before, ok := seen[key]; ok {
			require.Equal(t, before, plain, key)
		}
		seen[key] = plain
	}
	assert.Equal(t, "tenant=a,path=/b", keyOf(describe("tenant", "a", "path", "/b")))
	d := &domain{name: `a,\`}
	assert.Equal(t, `a\,\\,tenant=a`, d.counterKey("tenant=a"))
	assert.Len(t, d.counterKey(strings.Repeat("x", 300)), len("sha256:")+64)
}

func TestMatch_ShareThreshold(t *testing.T) {
	rules := edge(t, Descriptor{
		Key: "path", Value: "/files/*", ShareThreshold: true,
		Descriptors: []Descriptor{named("user", "", "user"), {
			Key: "us*", ShareThreshold: true, Limit: &Limit{Unlimited: true},
		}},
	})
	key := func(keysAndValues ...string) string {
		_, key := rules.domains["edge"].match(describe(keysAndValues...))
		return key
	}
	// As in envoyproxy/ratelimit, a pattern comes before the rule with the key alone, and the * of a key hides the value.
	assert.Equal(t, "path=/files/*,user=us*", key("path", "/files/1", "user", "ann"))
	assert.Equal(t, key("path", "/files/1", "user", "ann"), key("path", "/files/2", "user", "bob"))
}
