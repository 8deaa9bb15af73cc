package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/ask"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// describeAgain is how old the description of a pipeline gets while a page is open.
const describeAgain = 10 * time.Second

// A sampledPipeline is a pipeline of the registry and what it is asked. The question is nil if the last answer is new enough.
type sampledPipeline struct {
	name     string
	info     registry.PipelineInfo
	series   *pipelineSeries
	question *ask.Question[description]
}

// askPipelines asks the pipelines for their descriptions, which can call functions of the program and stores.
func (s *sampler) askPipelines(now time.Time) (all []sampledPipeline) {
	past := s.pipelines
	s.pipelines = map[string]*pipelineSeries{}
	for name, info := range s.options.Registry.Pipelines() {
		p := sampledPipeline{name: name, info: info, series: cmp.Or(past[name], &pipelineSeries{})}
		s.pipelines[name] = p.series
		if p.series.version != info.Version || now.Sub(p.series.at) >= describeAgain {
			p.series.version, p.series.at = info.Version, now
			p.question = p.series.describe.Ask("dashboard: Describe of a pipeline", func() description { return describe(info.Pipeline) })
		}
		all = append(all, p)
	}
	return all
}

func (p *sampledPipeline) state(ctx context.Context, events []pipelineEvent) pipelineState {
	series := p.series
	if p.question != nil {
		series.note = ""
		if d, ok := p.question.Wait(ctx); ok {
			series.description = d
		} else {
			series.note = "a strategy has not answered: its options and state are as last known"
		}
	}
	state := pipelineState{
		Name: p.name, Pipeline: p.info.Name, Instance: p.info.Instance, Version: p.info.Version, Built: p.info.Built.UTC(),
		Running: p.info.Pipeline.Running(), Draining: p.info.Draining, LastReload: utc(p.info.LastReload),
		Strategies: append(description{}, series.description...), Note: series.note, Events: append([]pipelineEvent{}, events...),
	}
	if state.Note != "" {
		state.Level = levelNotice
	}
	if slices.ContainsFunc(events, func(e pipelineEvent) bool { return e.Rate > 0 }) {
		state.Level = levelWarning
	}
	if p.info.Err != nil {
		state.Error, state.Level = errorText(p.info.Err), levelError
	}
	return state
}

// describe returns what p says about itself. It runs functions of the program.
func describe(p *pipeline.Pipeline) description {
	all := p.Describe()
	d := make(description, 0, len(all.Strategies))
	for _, each := range all.Strategies {
		s := strategyState{Name: shorten(each.Name, maxFieldText), Kind: each.Kind, Options: fieldsOf(each.Options)}
		s.Options = slices.DeleteFunc(s.Options, func(f field) bool { return f.Name == "name" && f.Value == each.Name })
		s.State = stateText(each.State)
		if each.Pipeline != nil {
			s.Embeds = pipeline.Source{Pipeline: each.Pipeline.Name, Instance: each.Pipeline.Instance}.String()
		}
		d = append(d, s)
	}
	return d
}

// pipelineEvents returns what is out of the ordinary in each pipeline, by its name.
func (s *sampler) pipelineEvents() map[string][]pipelineEvent {
	all := map[string][]pipelineEvent{}
	for _, c := range s.options.Events.counts() {
		if c.severity >= pipeline.SeverityWarning {
			name := pipeline.Source{Pipeline: c.source.Pipeline, Instance: c.source.Instance}.String()
			all[name] = append(all[name], pipelineEvent{c.name, c.source.Strategy, c.severity, c.total, c.rate, c.text, c.since})
		}
	}
	for _, events := range all {
		slices.SortFunc(events, func(a, b pipelineEvent) int {
			return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Strategy, b.Strategy))
		})
	}
	return all
}

// stateText returns the state of a strategy in one line. Its String method is the program's.
func stateText(state any) (text string) {
	recovered.Call("dashboard: String of a state", func() {
		switch s := state.(type) {
		case nil:
		case fmt.Stringer:
			text = s.String()
		case ratelimit.Partitions:
			text = keysText(int64(s))
		default:
			text = cmp.Or(fieldsOf(state).String(), fmt.Sprint(state))
		}
	})
	return shorten(text, maxFieldText)
}
