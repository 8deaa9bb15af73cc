package weirrls

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// maxName bounds the names of domains and limits in bytes.
const maxName = 1024

// NewRules returns rules for the given domains. The error is a [weir.OptionsError] with everything that is wrong, under paths
// such as Domains[0].Descriptors[2].Limit.Window.Unit.
func NewRules(domains ...Domain) (*Rules, error) {
	rules := &Rules{domains: make(map[string]*domain, len(domains))}
	var problems validate.Problems
	for i := range domains {
		from := &domains[i]
		path := fmt.Sprintf("Domains[%d]", i)
		problems.Text(path+".Name", from.Name, maxName)
		if rules.domains[from.Name] != nil {
			problems.Add(path+".Name", from.Name, "must not be the name of another domain")
		}
		d := &domain{name: from.Name, override: &limit{source: pipeline.Source{Pipeline: from.Name, Strategy: overrideName}}}
		p := preparation{problems: &problems, domain: d}
		p.level(&d.level, nil, false, path, from.Descriptors)
		rules.domains[from.Name] = d
	}
	if err := problems.Err("weirrls"); err != nil {
		return nil, err
	}
	return rules, nil
}

// A preparation makes the rules of a domain.
type preparation struct {
	problems *validate.Problems
	domain   *domain
}

// level adds rules to l, which belongs to the rule outer, or to the domain if outer is nil. hasValues reports whether a rule
// further out has ValueToMetric. path is where they stand.
func (p *preparation) level(l *level, outer *rule, hasValues bool, path string, from []Descriptor) {
	if len(from) > 0 {
		l.rules = make(map[string]*rule, len(from))
	}
	for i := range from {
		path := fmt.Sprintf("%s.Descriptors[%d]", path, i)
		p.rule(l, outer, hasValues, path, &from[i])
	}
}

// rule adds the rule of a Descriptor to l.
func (p *preparation) rule(l *level, outer *rule, hasValues bool, path string, from *Descriptor) {
	r := &rule{name: ruleName(from.Key, from.Value), shareThreshold: from.ShareThreshold, valueToMetric: from.ValueToMetric}
	r.path, r.allValues = r.name, from.DetailedMetric
	hasValues = hasValues || from.ValueToMetric
	if outer != nil {
		r.path = outer.path + "." + r.name
	}
	if hasValues || r.allValues {
		r.names = new(nameSet)
	}
	isPattern := strings.Contains(r.name, "*")
	switch {
	case from.Key == "":
		p.problems.Add(path+".Key", nil, "must be set")
	case !utf8.ValidString(from.Key):
		p.problems.Add(path+".Key", from.Key, "must be valid UTF-8")
	case !utf8.ValidString(from.Value):
		p.problems.Add(path+".Value", from.Value, "must be valid UTF-8")
	case l.rules[r.name] != nil:
		p.problems.Add(path, r.name, "must not have the same key and value as another descriptor at this level")
	}
	if from.ShareThreshold && !isPattern {
		p.problems.Add(path+".ShareThreshold", nil, "must not be set without a * in {Value}")
	}
	if from.Limit != nil {
		r.limit = p.limit(path+".Limit", r.path, from.Limit)
	}
	if len(from.Metadata) > 0 {
		metadata, err := structpb.NewStruct(from.Metadata)
		p.problems.Include(path+".Metadata", err)
		if r.limit != nil {
			r.limit.metadata = metadata
		}
	}
	l.rules[r.name] = r
	if isPattern {
		l.patterns = append(l.patterns, newPattern(r))
	}
	p.level(&r.level, r, hasValues, path, from.Descriptors)
}

// limit prepares a Limit. path is where it stands, and rulePath is the path of its rule.
func (p *preparation) limit(path, rulePath string, from *Limit) *limit {
	l := &limit{Limit: *from, source: pipeline.Source{Pipeline: p.domain.name, Strategy: rulePath}}
	if l.Name != "" {
		l.source.Strategy = l.Name
		p.problems.Text(path+".Name", l.Name, maxName)
	}
	if l.Window != nil {
		window := *l.Window
		l.Window = &window
	}
	l.Replaces = slices.Clone(l.Replaces)
	p.problems.Include(path, from.validate())
	for _, v := range []any{l.Limiter, l.Partitioned} {
		if v != nil && isnil.Value(v) {
			return l // a problem was found, and the methods of the limiter cannot be called
		}
	}
	if l.Limiter == nil && l.Partitioned == nil {
		return l
	}
	l.ask()
	if l.lends() {
		p.problems.Add(path, nil, "must not have a concurrency limiter, because the protocol does not release permits; use a sliding "+
			"window that is longer than requests take")
	}
	if l.OnOverrun != OverrunNothing && l.charges == nil {
		p.problems.Add(path+".OnOverrun", l.OnOverrun, "must not be set for a limiter that is not a limiter.Charger")
	}
	return l
}

// validate returns a [weir.OptionsError] with everything that is wrong with the fields of l, or nil.
func (l *Limit) validate() error {
	var problems validate.Problems
	set := 0
	for _, is := range []bool{
		problems.IsSet("Limiter", l.Limiter), problems.IsSet("Partitioned", l.Partitioned), l.Window != nil, l.Unlimited,
	} {
		if is {
			set++
		}
	}
	switch {
	case set == 0:
		problems.Add("", nil, "must have one of {Limiter}, {Partitioned}, {Window} and {Unlimited}")
	case set > 1:
		problems.Add("", nil, "must have only one of {Limiter}, {Partitioned}, {Window} and {Unlimited}")
	}
	if l.Window != nil && !l.Window.Unit.usable() {
		problems.Add("Window.Unit", l.Window.Unit, "must be one of second, minute, hour, day, week, month and year")
	}
	for i, name := range l.Replaces {
		path := fmt.Sprintf("Replaces[%d]", i)
		switch name {
		case "":
			problems.Add(path, nil, "must be set")
		case l.Name:
			problems.Add(path, name, "must not be the {Name} of the limit itself")
		}
	}
	if !overrunTexts.Has(l.OnOverrun) {
		problems.Add("OnOverrun", l.OnOverrun, "must be OverrunNothing, OverrunDebt or OverrunRest")
	}
	if (l.Window != nil || l.Unlimited) && l.OnOverrun != OverrunNothing {
		problems.Add("OnOverrun", nil, "must not be set without {Limiter} or {Partitioned}")
	}
	return problems.Err("weirrls")
}
