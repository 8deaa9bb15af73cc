package dashboard

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

const (
	// maxSampled bounds the limiters that have rates and a history, and the circuits whose changes are noticed.
	maxSampled = 1000
	// columns and columnLength make the history of a limiter: five minutes.
	columns      = 50
	columnLength = 6 * time.Second
	// quietAfter is how long a limiter has not rejected when its trouble is over.
	quietAfter = 10 * time.Second
	// describeAgain is how old the description of a pipeline gets while a page is open.
	describeAgain = 10 * time.Second
)

// A sampler remembers what snapshots alone do not show: counts of the past, and since when something is as it is.
type sampler struct {
	dashboard *Dashboard
	limiters  map[string]*limiterSeries
	circuits  map[pipeline.Source]*circuitSeries
	pipelines map[string]*pipelineSeries
	stores    map[string]*rateMeter
	since     map[string]time.Time // when a trouble was first seen, by what it is
	seen      map[string]time.Time // when it was last seen
	jobs      asker[jobsAnswer]
}

func (s *sampler) init(d *Dashboard) {
	*s = sampler{
		dashboard: d,
		limiters:  map[string]*limiterSeries{},
		circuits:  map[pipeline.Source]*circuitSeries{},
		pipelines: map[string]*pipelineSeries{},
		stores:    map[string]*rateMeter{},
		since:     map[string]time.Time{},
		seen:      map[string]time.Time{},
	}
}

// A limiterSeries is the past of one limiter.
type limiterSeries struct {
	limiter           any
	statistics        asker[limiter.Statistics]
	keys              asker[keysAnswer]
	known             bool      // there is a reading
	at                time.Time // of the last one
	granted, rejected int64
	grantedRate       rateMeter
	rejectedRate      rateMeter
	history           [columns]column
	columnAt          int64     // the number of the newest column
	rejecting         time.Time // since when it rejects; zero: it does not
	lastRejection     time.Time
}

// add adds a reading.
func (s *limiterSeries) add(now time.Time, granted, rejected int64) {
	if at := now.UnixNano() / int64(columnLength); at != s.columnAt {
		if s.columnAt == 0 {
			s.columnAt = at - columns
		}
		for i := max(s.columnAt+1, at-columns+1); i <= at; i++ {
			s.history[i%columns] = column{}
		}
		s.columnAt = at
	}
	if s.known && now.Sub(s.at) <= columnLength { // after a pause it is not known when it was
		c := &s.history[s.columnAt%columns]
		c.Granted += max(granted-s.granted, 0)
		c.Rejected += max(rejected-s.rejected, 0)
	}
	if s.known && rejected > s.rejected {
		if s.rejecting.IsZero() {
			s.rejecting = now
		}
		s.lastRejection = now
	}
	if now.Sub(s.lastRejection) > quietAfter {
		s.rejecting = time.Time{}
	}
	s.known, s.at, s.granted, s.rejected = true, now, granted, rejected
	s.grantedRate.add(now, granted)
	s.rejectedRate.add(now, rejected)
}

// columnsInOrder returns the history, the oldest column first.
func (s *limiterSeries) columnsInOrder() []column {
	all := make([]column, 0, columns)
	for i := s.columnAt - columns + 1; i <= s.columnAt; i++ {
		if i < 0 {
			continue
		}
		all = append(all, s.history[i%columns])
	}
	return all
}

// A circuitSeries is the past of one circuit.
type circuitSeries struct {
	state string
	since time.Time // zero: before the first look
}

// A pipelineSeries is what is known of the strategies of one pipeline.
type pipelineSeries struct {
	describe    asker[description]
	version     int
	at          time.Time
	description description
	note        string // what is wrong with the description
}

// A description is what the strategies of a pipeline say about themselves.
type description []strategyState

// sample reads what is needed for rates and times, while no page is open. It calls neither a store nor the program.
func (s *sampler) sample(now time.Time) {
	s.dashboard.options.Events.flush(now)
	seen := map[string]bool{}
	for name, info := range s.dashboard.options.Registry.Limiters() {
		series := s.limiterSeries(name, info.Limiter, seen)
		if series == nil {
			continue
		}
		if st, ok := localStatistics(info.Limiter); ok {
			series.add(now, st.SuccessfulLeases, st.FailedLeases)
		}
	}
	s.prune(seen)
	circuits := map[pipeline.Source]bool{}
	for _, p := range s.dashboard.options.Registry.All() {
		s.dashboard.options.Events.isolateAgain(p)
		for source, c := range circuitsOf(p) {
			s.observeCircuit(source, c.CircuitState(), now, circuits)
		}
	}
	s.pruneCircuits(circuits)
}

// limiterSeries returns the past of a limiter, or nil if there are too many. seen gets its name.
func (s *sampler) limiterSeries(name string, l any, seen map[string]bool) *limiterSeries {
	seen[name] = true
	series := s.limiters[name]
	if series != nil && series.limiter == l {
		return series
	}
	if series == nil && len(s.limiters) >= maxSampled {
		return nil
	}
	series = &limiterSeries{limiter: l} // a new limiter counts from 0
	s.limiters[name] = series
	return series
}

func (s *sampler) prune(seen map[string]bool) {
	maps.DeleteFunc(s.limiters, func(name string, _ *limiterSeries) bool { return !seen[name] })
}

// observeCircuit notes the state of a circuit.
func (s *sampler) observeCircuit(source pipeline.Source, state string, now time.Time, seen map[pipeline.Source]bool) *circuitSeries {
	seen[source] = true
	c := s.circuits[source]
	switch {
	case c == nil && len(s.circuits) >= maxSampled:
		return &circuitSeries{state: state}
	case c == nil:
		c = &circuitSeries{state: state}
		s.circuits[source] = c
	case c.state != state:
		c.state, c.since = state, now
	}
	return c
}

func (s *sampler) pruneCircuits(seen map[pipeline.Source]bool) {
	maps.DeleteFunc(s.circuits, func(source pipeline.Source, _ *circuitSeries) bool { return !seen[source] })
}

// localStatistics returns the statistics of a limiter without a call to a store or to the program.
func localStatistics(l any) (st limiter.Statistics, ok bool) {
	if isLocal(l) {
		return l.(limiter.StatisticsProvider).Statistics(), true
	}
	switch l := l.(type) {
	case interface {
		StatisticsContext(ctx context.Context) limiter.Statistics
	}: // with a context that is done it does not call the store, and returns what was last known
		return l.StatisticsContext(done), true
	case interface {
		StatisticsContext(ctx context.Context, key string) (limiter.Statistics, error)
	}: // the counts are those of all keys
		st, err := l.StatisticsContext(done, "")
		return st, err == nil
	default:
		return st, false
	}
}

// isLocal reports whether a limiter is one of package limiter that is not partitioned.
func isLocal(l any) bool {
	switch l.(type) {
	case *limiter.TokenBucket, *limiter.FixedWindow, *limiter.SlidingWindow, *limiter.Concurrency:
		return true
	default:
		return false
	}
}

var done = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// snapshot reads everything.
func (s *sampler) snapshot(now time.Time) *snapshot {
	o := &s.dashboard.options
	o.Events.flush(now)
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	infos := make([]registry.LimiterInfo, 0)
	for _, info := range o.Registry.Limiters() {
		infos = append(infos, info)
	}
	jobs := s.askJobs()
	statistics := s.askLimiters(infos)
	keys := s.askKeys(infos)
	pipelines := s.pipelineInfos()

	snap := &snapshot{
		Time: now.UTC(), Instance: o.Instance, Started: s.dashboard.started.UTC(), ReadOnly: o.Authorize == nil, HashedKeys: !o.ShowKeys,
		Files:     s.files(),
		Limiters:  s.limiterStates(ctx, now, infos, statistics, keys),
		Keys:      s.keyStates(ctx, infos, keys),
		Pipelines: s.pipelineStates(ctx, pipelines),
		Circuits:  s.circuitStates(now),
		Events:    s.events(),
		Stores:    s.storeStates(now),
	}
	s.jobStates(ctx, jobs, snap)
	s.addTrouble(snap)
	snap.Summary = summarize(snap)
	return snap
}

// askLimiters asks the limiters for their statistics, all at once. A question is nil if there is no need to wait.
func (s *sampler) askLimiters(infos []registry.LimiterInfo) []*question[limiter.Statistics] {
	questions := make([]*question[limiter.Statistics], len(infos))
	seen := map[string]bool{}
	for i, info := range infos {
		series := s.limiterSeries(info.Name, info.Limiter, seen)
		if series == nil {
			continue
		}
		if asker, ok := info.Limiter.(interface {
			StatisticsContext(ctx context.Context) limiter.Statistics
		}); ok {
			questions[i] = series.statistics.ask("Statistics of a limiter", func() limiter.Statistics {
				// If the store does not answer, the limiter returns what it knows before the snapshot gives up.
				ctx, cancel := context.WithTimeout(context.Background(), answerTimeout*3/4)
				defer cancel()
				return asker.StatisticsContext(ctx)
			})
		}
	}
	s.prune(seen)
	return questions
}

func (s *sampler) limiterStates(ctx context.Context, now time.Time, infos []registry.LimiterInfo, questions []*question[limiter.Statistics], keys []*question[keysAnswer]) []limiterState {
	states := make([]limiterState, 0, len(infos))
	for i, info := range infos {
		states = append(states, s.limiterState(ctx, now, info, questions[i], keys[i]))
	}
	return states
}

func (s *sampler) limiterState(ctx context.Context, now time.Time, info registry.LimiterInfo, q *question[limiter.Statistics], keys *question[keysAnswer]) limiterState {
	state := describeLimiter(info)
	series := s.limiters[info.Name]
	if series == nil {
		state.Note = "there are too many limiters: this one has no figures"
		return state
	}
	st, known := localStatistics(info.Limiter)
	if q != nil {
		if answer, ok := q.wait(ctx); ok {
			st = answer
		} else {
			state.Note = "the store has not answered in time: what is available is as last known"
		}
	}
	if known {
		series.add(now, st.SuccessfulLeases, st.FailedLeases)
		state.Granted, state.Rejected = new(st.SuccessfulLeases), new(st.FailedLeases)
		if !state.partitioned {
			state.Available, state.Queued = new(st.AvailablePermits), new(st.QueuedPermits)
		}
	} else if keys != nil { // a partitioned limiter in this process counts only rejections, and only while it is asked
		if answer, ok := keys.wait(ctx); ok {
			if series.add(now, 0, answer.total); series.rejectedRate.n > 1 {
				state.Rejected = new(answer.total)
			}
		}
	}
	if l, ok := info.Limiter.(interface{ Len() int }); ok {
		state.Partitions = new(l.Len())
	}
	state.GrantedRate, state.RejectedRate = series.grantedRate.perSecond(), series.rejectedRate.perSecond()
	state.Since = series.rejecting
	state.History = series.columnsInOrder()
	switch {
	case state.RejectedRate > state.GrantedRate && state.Granted != nil:
		state.Level = levelError
	case state.RejectedRate > 0:
		state.Level = levelWarning
	case state.Override != nil || state.Note != "":
		state.Level = levelNotice
	}
	return state
}

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
	questions := make([]*question[description], len(infos))
	for i, info := range infos {
		series := s.pipelines[nameOfPipeline(info)]
		if series.version == info.Version && now.Sub(series.at) < describeAgain {
			continue
		}
		questions[i] = series.describe.ask("Describe of a pipeline", func() description { return describe(info.Pipeline) })
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
			d, ok := q.wait(ctx)
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

func (s *sampler) circuitStates(now time.Time) []circuitState {
	events := s.dashboard.options.Events
	causes := events.openings()
	states := []circuitState{}
	seen := map[pipeline.Source]bool{}
	for _, p := range s.dashboard.options.Registry.All() {
		events.isolateAgain(p)
		for source, c := range circuitsOf(p) {
			st := c.Statistics()
			series := s.observeCircuit(source, st.State.String(), now, seen)
			state := circuitState{
				Source: source.String(), State: st.State.String(), Since: utc(series.since), RetryAfter: st.RetryAfter.Round(time.Millisecond),
				Figures: figures(st),
			}
			if opened, ok := causes[source]; ok && state.State != "closed" {
				state.Cause = opened.text
				if state.Since.IsZero() {
					state.Since = opened.at.UTC()
				}
			}
			switch state.State {
			case "open":
				state.Level = levelError
			case "isolated":
				state.Level, state.Cause = levelError, ""
				if i, ok := events.isolationOf(source); ok {
					state.IsolatedBy, state.Since = i.by, i.since.UTC()
				}
			case "half_open":
				state.Level = levelWarning
			}
			states = append(states, state)
		}
	}
	s.pruneCircuits(seen)
	return states
}

func (s *sampler) events() []eventState {
	rows := s.dashboard.options.Events.all()
	states := make([]eventState, 0, len(rows))
	for _, r := range rows {
		e := eventState{
			Time: r.last.UTC(), Count: r.count, Name: r.name, Severity: r.severity, Source: cmp.Or(r.where, r.source.String()),
			Operation: r.operation, Text: r.text, User: r.user, Key: s.dashboard.keyText(r.key),
		}
		if r.count > 1 {
			e.First = r.first.UTC()
		}
		states = append(states, e)
	}
	return states
}

func (s *sampler) storeStates(now time.Time) []storeState {
	stores := s.dashboard.options.Stores
	states := make([]storeState, 0, len(stores))
	for _, name := range slices.Sorted(maps.Keys(stores)) {
		h, c := stores[name].Health(), stores[name].Counters()
		if s.stores[name] == nil {
			s.stores[name] = &rateMeter{}
		}
		s.stores[name].add(now, c.Calls)
		state := storeState{
			Name: name, Available: h.Err == nil, Listening: h.Listening, Since: utc(h.Since),
			Calls: c.Calls, Failures: c.Failures, Decisions: c.Decisions, Cached: c.Cached, FromBlocks: c.FromBlocks, Outages: c.Outages,
			CallRate: s.stores[name].perSecond(),
		}
		if h.Err != nil {
			state.Error = errorText(h.Err)
		}
		for _, sh := range h.Shards {
			each := shardState{Name: cmp.Or(sh.Shard, "keys of an unknown shard"), Since: utc(sh.Since)}
			if sh.Err != nil {
				each.Error = errorText(sh.Err)
			}
			state.Shards = append(state.Shards, each)
		}
		states = append(states, state)
	}
	return states
}

func (s *sampler) files() []fileState {
	states := []fileState{}
	for _, w := range s.dashboard.options.Watchers {
		st := w.Status()
		f := fileState{
			Path: st.Path, Loads: st.Loads, Failures: st.Failures, LastAttempt: utc(st.LastAttempt), LastLoad: utc(st.LastLoad),
			Pipelines: st.Pipelines,
		}
		if f.Pipelines == nil {
			f.Pipelines = []string{}
		}
		if st.Err != nil {
			f.Error = shorten(st.Err.Error(), 4*maxText)
		}
		states = append(states, f)
	}
	return states
}

// A jobsAnswer is the answer of [Jobs.Limiters].
type jobsAnswer struct {
	limiters []JobLimiter
	err      error
}

// askJobs asks for the limiters of jobs, or returns nil if there are none.
func (s *sampler) askJobs() *question[jobsAnswer] {
	jobs := s.dashboard.options.Jobs
	if jobs == nil {
		return nil
	}
	return s.jobs.ask("Limiters of Jobs", func() (a jobsAnswer) {
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		defer cancel()
		a.err = recovered.Error(func() (err error) {
			a.limiters, err = jobs.Limiters(ctx)
			return err
		})
		return a
	})
}

func (s *sampler) jobStates(ctx context.Context, q *question[jobsAnswer], snap *snapshot) {
	if q == nil {
		return
	}
	snap.Jobs = []jobState{}
	answer, ok := q.wait(ctx)
	switch {
	case !ok:
		snap.JobsError = "the list has not come in time"
	case answer.err != nil:
		snap.JobsError = errorText(answer.err)
	}
	for _, l := range answer.limiters {
		j := jobState{JobLimiter: l}
		j.Key = s.dashboard.keyText(j.Key)
		if l.Waiters > 0 {
			j.Level = levelNotice
		}
		snap.Jobs = append(snap.Jobs, j)
	}
}

// utc returns t in UTC, and the zero time as it is.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// stateText returns the state of a strategy in one line.
func stateText(state any) (text string) {
	recovered.Call("dashboard: String of a state", func() { text = stateString(state) })
	return text
}
