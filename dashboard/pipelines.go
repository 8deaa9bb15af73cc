package dashboard

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/ask"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

// A pipelineSeries is what is known of the strategies of one pipeline.
type pipelineSeries struct {
	describe    ask.Asker[description]
	version     int
	at          time.Time
	description description
	note        string // what is wrong with the description
}

// A description is what the strategies of a pipeline say about themselves.
type description []strategyState

// pipelineInfos returns what the registry says about the pipelines.
func (s *sampler) pipelineInfos() []registry.PipelineInfo {
	var infos []registry.PipelineInfo
	seen := map[string]bool{}
	for name, info := range s.dashboard.options.Registry.Pipelines() {
		infos = append(infos, info)
		seen[name] = true
		if s.pipelines[name] == nil {
			s.pipelines[name] = &pipelineSeries{}
		}
	}
	maps.DeleteFunc(s.pipelines, func(name string, _ *pipelineSeries) bool { return !seen[name] })
	return infos
}

// pipelineStates returns the states of the pipelines. Their descriptions, which can call functions of the program and
// stores, are asked for again if they are not new enough.
func (s *sampler) pipelineStates(ctx context.Context, infos []registry.PipelineInfo) []pipelineState {
	now := time.Now()
	questions := make([]*ask.Question[description], len(infos))
	for i, info := range infos {
		series := s.pipelines[nameOfPipeline(info)]
		if series.version == info.Version && now.Sub(series.at) < describeAgain {
			continue
		}
		questions[i] = series.describe.Ask("dashboard: Describe of a pipeline", func() description { return describe(info.Pipeline) })
	}
	events := s.pipelineEvents()
	states := make([]pipelineState, 0, len(infos))
	for i, info := range infos {
		name := nameOfPipeline(info)
		state := pipelineState{
			Name: name, Pipeline: info.Name, Instance: info.Instance, Version: info.Version, Built: info.Built.UTC(),
			Draining: info.Draining, LastReload: utc(info.LastReload), Events: events[name],
		}
		series := s.pipelines[name]
		if q := questions[i]; q != nil {
			d, ok := q.Wait(ctx)
			if series.note = ""; ok {
				series.description = d
			} else {
				series.note = "a strategy has not answered: its options and state are as last known"
			}
			series.version, series.at = info.Version, now
		}
		state.Note = series.note
		state.Running, state.Strategies = info.Pipeline.Running(), series.description
		if state.Strategies == nil {
			state.Strategies = []strategyState{}
		}
		if state.Events == nil {
			state.Events = []pipelineEvent{}
		}
		if info.Err != nil {
			state.Error = errorText(info.Err)
			state.Level = levelError
		}
		for _, e := range state.Events {
			if e.Rate > 0 {
				state.Level = max(state.Level, levelWarning)
			}
		}
		if state.Note != "" {
			state.Level = max(state.Level, levelNotice)
		}
		states = append(states, state)
	}
	return states
}

func nameOfPipeline(info registry.PipelineInfo) string {
	return pipeline.Source{Pipeline: info.Name, Instance: info.Instance}.String()
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

// pipelineEvents returns what has happened in each pipeline, by its name.
func (s *sampler) pipelineEvents() map[string][]pipelineEvent {
	all := map[string][]pipelineEvent{}
	for _, r := range s.dashboard.options.Events.rates() {
		if r.severity < pipeline.SeverityWarning {
			continue
		}
		name := pipeline.Source{Pipeline: r.source.Pipeline, Instance: r.source.Instance}.String()
		all[name] = append(all[name], pipelineEvent{
			Name: r.name, Strategy: r.source.Strategy, Severity: r.severity, Total: r.total, Rate: r.rate, Text: r.text, since: r.since,
		})
	}
	for _, events := range all {
		slices.SortFunc(events, func(a, b pipelineEvent) int {
			return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Strategy, b.Strategy))
		})
	}
	return all
}

// stateText returns the state of a strategy in one line.
func stateText(state any) (text string) {
	recovered.Call("dashboard: String of a state", func() { text = stateString(state) })
	return text
}
