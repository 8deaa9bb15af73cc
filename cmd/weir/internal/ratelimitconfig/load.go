package ratelimitconfig

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weir-go/weir/cmd/weir/internal/rlsconfig"
)

// The types of a file of the other server. It reads them by version 2 of the YAML package, and so does this package: what
// a text such as "yes" or "0o10" is differs from version to version.
type (
	root struct {
		Domain      string
		Descriptors []descriptor
	}
	descriptor struct {
		Key            string
		Value          string
		RateLimit      *rateLimit `yaml:"rate_limit"`
		Descriptors    []descriptor
		ShadowMode     bool `yaml:"shadow_mode"`
		QuotaMode      bool `yaml:"quota_mode"`
		DetailedMetric bool `yaml:"detailed_metric"`
		ValueToMetric  bool `yaml:"value_to_metric"`
		ShareThreshold bool `yaml:"share_threshold"`
		Metadata       map[string]any
	}
	rateLimit struct {
		RequestsPerUnit uint32 `yaml:"requests_per_unit"`
		Unit            string
		Unlimited       bool
		Name            string
		Replaces        []struct{ Name string }
	}
)

// A loader loads files one after the other.
type loader struct {
	merge   bool // a domain can be in several files
	domains []rlsconfig.Domain
	files   map[string]string          // the first file of each domain
	seen    map[string]map[string]bool // the names of the outermost rules, by domain
}

func newLoader(merge bool) *loader {
	return &loader{merge: merge, files: make(map[string]string), seen: make(map[string]map[string]bool)}
}

// load adds what a file has. It returns a [*reload.FileError] with everything that the other server would refuse. Where it
// stops at the first problem, load goes on. If places is zero, its problems have no lines.
func (l *loader) load(f File, places place) error {
	p := &problems{file: f.Name}
	raw := map[any]any{}
	if err := unmarshal(f.Content, &raw); err != nil {
		p.addYAML(err)
		return p.err()
	}
	checkKeys(p, places, raw)
	if err := p.err(); err != nil {
		return err
	}
	var r root
	if err := unmarshal(f.Content, &r); err != nil {
		p.addYAML(err)
		return p.err()
	}
	l.add(p, places, r)
	return p.err()
}

// unmarshal reads YAML. A panic of the YAML package is an error.
func unmarshal(content []byte, to any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("yaml: reading it panicked: %v", p)
		}
	}()
	return yamlv2.Unmarshal(content, to)
}

// add adds the domain of a file.
func (l *loader) add(p *problems, at place, r root) {
	domain := at.get("domain")
	if r.Domain == "" {
		p.add(domain.line, domain.column, "domain", "must not be empty: it is the domain that Envoy's filter has")
		return
	}
	i := slices.IndexFunc(l.domains, func(d rlsconfig.Domain) bool { return d.Domain == r.Domain })
	switch {
	case i >= 0 && !l.merge:
		p.add(domain.line, domain.column, "domain", "must not be %q, which is in %s: put both into one file, or set -merge-domains (MERGE_DOMAIN_CONFIG)", r.Domain, l.files[r.Domain])
		return
	case i < 0:
		i = len(l.domains)
		l.domains = append(l.domains, rlsconfig.Domain{Domain: r.Domain})
		l.files[r.Domain], l.seen[r.Domain] = p.file, make(map[string]bool)
	}
	made := translateAll(p, at.get("descriptors"), "descriptors", r.Descriptors, l.seen[r.Domain])
	l.domains[i].Descriptors = append(l.domains[i].Descriptors, made...)
}

// translateAll checks and translates the rules of a list. seen has the names of the rules before it.
func translateAll(p *problems, at place, path string, all []descriptor, seen map[string]bool) []rlsconfig.Descriptor {
	made := make([]rlsconfig.Descriptor, 0, len(all))
	for i, d := range all {
		here := at.item(i)
		path := fmt.Sprintf("%s[%d]", path, i)
		name := d.Key
		if d.Value != "" {
			name += "_" + d.Value
		}
		switch {
		case d.Key == "":
			p.add(here.line, here.column, path, "must have a key that is not empty")
		case seen[name]:
			key := here.get("key")
			p.add(key.line, key.column, path+".key", "must not form %q with its value: another rule of this list does", name)
		}
		seen[name] = true
		made = append(made, translate(p, here, path, d, name))
	}
	return made
}

// translate checks and translates a rule.
func translate(p *problems, at place, path string, d descriptor, name string) rlsconfig.Descriptor {
	made := rlsconfig.Descriptor{
		Key: d.Key, Value: d.Value, ShadowMode: d.ShadowMode, QuotaMode: d.QuotaMode,
		DetailedMetric: d.DetailedMetric, ValueToMetric: d.ValueToMetric, ShareThreshold: d.ShareThreshold,
	}
	if d.RateLimit != nil {
		made.RateLimit = translateLimit(p, at.get("rate_limit"), path+".rate_limit", *d.RateLimit)
	}
	if d.ShareThreshold && !strings.Contains(name, "*") {
		where := at.get("share_threshold")
		p.add(where.line, where.column, path+".share_threshold", "must be left out without a * in value")
	}
	made.Metadata = translateMetadata(p, at.get("metadata"), path+".metadata", d.Metadata)
	made.Descriptors = translateAll(p, at.get("descriptors"), path+".descriptors", d.Descriptors, make(map[string]bool))
	return made
}

// translateLimit checks and translates the limit of a rule.
func translateLimit(p *problems, at place, path string, l rateLimit) *rlsconfig.RateLimit {
	made := &rlsconfig.RateLimit{Unlimited: l.Unlimited, Name: l.Name}
	unit, known := unitOf(l.Unit)
	where := at.get("unit")
	switch {
	case l.Unlimited && known:
		p.add(where.line, where.column, path+".unit", "must be left out with unlimited")
	case !l.Unlimited && !known:
		p.add(where.line, where.column, path+".unit", "must be one of second, minute, hour, day, week, month and year, got %.60q", l.Unit)
	case !l.Unlimited:
		made.RequestsPerUnit, made.Unit = &l.RequestsPerUnit, &unit
	}
	for i, r := range l.Replaces {
		where, path := at.get("replaces").item(i), fmt.Sprintf("%s.replaces[%d].name", path, i)
		switch r.Name {
		case "":
			p.add(where.line, where.column, path, "must not be empty")
		case l.Name:
			p.add(where.line, where.column, path, "must not be the name of the limit itself")
		}
		made.Replaces = append(made.Replaces, rlsconfig.Replaced{Name: r.Name})
	}
	return made
}

// unitOf returns the unit that a text stands for, in letters of any case.
func unitOf(text string) (unit rlsconfig.Unit, known bool) {
	for unit := range rlsconfig.Unit(math.MaxUint8) {
		name, err := unit.MarshalText()
		if err != nil {
			break
		}
		if strings.ToUpper(text) == strings.ToUpper(string(name)) { //nolint:staticcheck // EqualFold takes more letters for the same
			return unit, true
		}
	}
	return 0, false
}

// translateMetadata returns metadata with the values that JSON has.
func translateMetadata(p *problems, at place, path string, m map[string]any) map[string]any {
	if len(m) == 0 {
		return nil
	}
	plain, _ := withTextKeys(m).(map[string]any)
	s, err := structpb.NewStruct(plain)
	if err == nil {
		_, err = s.MarshalJSON() // refuses NaN and infinity
	}
	if err != nil {
		p.add(at.line, at.column, path, "must have only what JSON has: %v", err)
		return nil
	}
	return s.AsMap()
}

// withTextKeys returns the value with texts as the keys of all mappings, as the other server makes them.
func withTextKeys(value any) any {
	switch v := value.(type) {
	case map[string]any:
		made := make(map[string]any, len(v))
		for key, value := range v {
			made[key] = withTextKeys(value)
		}
		return made
	case map[any]any:
		made := make(map[string]any, len(v))
		for key, value := range v {
			made[fmt.Sprint(key)] = withTextKeys(value)
		}
		return made
	case []any:
		made := make([]any, len(v))
		for i, value := range v {
			made[i] = withTextKeys(value)
		}
		return made
	default:
		return v
	}
}

// validKeys are the keys that a file can have, at any depth. The other server does not check that a key is where it has an
// effect.
var validKeys = []string{
	"domain", "key", "value", "descriptors", "rate_limit", "unit", "requests_per_unit", "unlimited", "shadow_mode", "quota_mode",
	"name", "replaces", "detailed_metric", "value_to_metric", "share_threshold", "metadata",
}

// checkKeys checks the keys and the kinds of values, except in metadata.
func checkKeys(p *problems, at place, m map[any]any) {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, k := range keys {
		key, ok := k.(string)
		here := at.key(fmt.Sprint(k))
		switch {
		case !ok:
			p.add(here.line, here.column, "", "the key %.60q must be text, which is written in quotes", fmt.Sprint(k))
			continue
		case !slices.Contains(validKeys, key):
			p.add(here.line, here.column, "", "unknown key %.60q, %s", key, suggest(key))
			continue
		case key == "metadata":
			continue
		}
		checkValue(p, at.get(key), key, m[k])
	}
}

// checkValue checks the value of a key.
func checkValue(p *problems, at place, key string, value any) {
	switch v := value.(type) {
	case []any:
		for i, e := range v {
			m, ok := e.(map[any]any)
			if !ok {
				here := at.item(i)
				p.add(here.line, here.column, key, "must be a list of mappings, found %.60q", fmt.Sprint(e))
				continue
			}
			checkKeys(p, at.item(i), m)
		}
	case map[any]any:
		checkKeys(p, at, v)
	case string, int, int64, bool, nil:
	default:
		p.add(at.line, at.column, key, "must be text, a whole number, true or false, found %.60q", fmt.Sprint(value))
	}
}

// suggest returns what a misspelt key may stand for.
func suggest(key string) string {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	for _, valid := range validKeys {
		if plain(valid) == plain(key) {
			return "did you mean " + valid + "?"
		}
	}
	return "must be one of " + strings.Join(validKeys, ", ")
}

// yamlLine finds the line in an error of the YAML package.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?line ([0-9]+): `)

// addYAML adds an error of the YAML package.
func (p *problems) addYAML(err error) {
	texts := []string{err.Error()}
	if several, ok := errors.AsType[*yamlv2.TypeError](err); ok {
		texts = several.Errors
	}
	for _, text := range texts {
		line := 1
		if m := yamlLine.FindStringSubmatch(text); m != nil {
			line, _ = strconv.Atoi(m[1])
			text = text[len(m[0]):]
		}
		p.add(line, 1, "", "%.500s", strings.TrimPrefix(text, "yaml: "))
	}
}

// A place is where a value of a file stands. The zero place is that of a value that is not written.
type place struct {
	line, column int
	node         *yaml.Node
}

// placesOf returns the place of the content. If another version of the YAML package cannot read it, no places are known.
func placesOf(content []byte) (at place) {
	defer func() {
		if recover() != nil {
			at = place{}
		}
	}()
	var documents []yaml.Node
	if err := yaml.Load(content, &documents, yaml.WithAllDocuments(), yaml.WithUniqueKeys(false)); err != nil || len(documents) == 0 {
		return place{}
	}
	if n := &documents[0]; n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		return placeOf(n.Content[0])
	}
	return placeOf(&documents[0])
}

func placeOf(n *yaml.Node) place {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return place{n.Line, n.Column, n}
}

// get returns the place of the value of a key, or the place of the mapping if the key is not written.
func (p place) get(key string) place { return p.written(key, 1) }

// key returns the place of a key itself.
func (p place) key(key string) place { return p.written(key, 0) }

// written returns the place of a key, or of the value after it. The last one counts.
func (p place) written(key string, after int) place {
	if p.node != nil && p.node.Kind == yaml.MappingNode {
		for i := len(p.node.Content) - 2; i >= 0; i -= 2 {
			if p.node.Content[i].Value == key {
				return placeOf(p.node.Content[i+after])
			}
		}
	}
	return place{line: p.line, column: p.column}
}

// item returns the place of an item of a list.
func (p place) item(i int) place {
	if p.node != nil && p.node.Kind == yaml.SequenceNode && i < len(p.node.Content) {
		return placeOf(p.node.Content[i])
	}
	return place{line: p.line, column: p.column}
}
