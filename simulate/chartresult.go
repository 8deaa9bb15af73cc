package simulate

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// svgWidth is how wide pictures are, and narrowWidth how wide they are on the page that a phone shows.
const (
	svgWidth    = 800
	narrowWidth = 400
)

// The series of pictures.
var (
	styleOffered   = seriesStyle{paint: ink, width: 1.5}
	styleAdmitted  = seriesStyle{paint: blue}
	styleSucceeded = seriesStyle{paint: blue}
	styleRejected  = seriesStyle{paint: orange, hatch: hatched}
	styleFailed    = seriesStyle{paint: wine, hatch: crossed}
	styleCalls     = seriesStyle{paint: teal, dash: "7 3", width: 2}
	styleRunning   = seriesStyle{paint: tealLight}
	styleWaiting   = seriesStyle{paint: wine, dash: "5 3", width: 2}
	styleP50       = seriesStyle{paint: blue, width: 2}
	styleP99       = seriesStyle{paint: orange, dash: "5 3", width: 2}
	styleBack      = seriesStyle{paint: shade}
)

// WriteSVG writes r as a picture: how many executions per second there were and how they ended, how many of them waited and
// how many calls ran at the same time, and latencies, over time. If the pipeline called the service more than once for an
// execution, the calls per second are there, too. The picture needs no script, font or other file, and follows the viewer's choice of light or dark. Names
// are escaped.
func (r *Result) WriteSVG(w io.Writer) error { return r.figure().write(w, "weir", svgWidth) }

func (r *Result) figure() *figure {
	f := &figure{title: r.pictureTitle(), subtitle: r.subtitle(), summary: r.summary() + ".", columns: 1, height: 120, footer: assumedText(r.Assumed)}
	f.panels = r.panels(svgWidth, r.retries())
	for i := range f.panels {
		f.panels[i].end = r.until()
	}
	return f
}

func (r *Result) pictureTitle() string {
	if r.Pipeline == "" {
		return r.title()
	}
	return "Simulation of pipeline " + isolated(shorten(printable(r.Pipeline), 60)) + ": " + formatMoment(r.For) + " of requests"
}

func assumedText(assumed []string) string {
	if len(assumed) == 0 {
		return "Nothing was assumed."
	}
	return "Assumed: " + printable(strings.Join(assumed, " "))
}

// retries reports whether there were notably more calls of the service than executions that reached it.
func (r *Result) retries() bool { return r.Total.Retried > r.Total.Admitted/50 }

// panels returns the panels of one result in a picture that is so wide. calls says that the calls of the service are shown.
func (r *Result) panels(width float64, calls bool) []panel {
	points, step := r.merged(int(width / 1.6))
	of := func(name string, shape shape, style seriesStyle, value func(*Point) float64) series {
		s := series{name: name, shape: shape, style: style, step: step, values: make([]float64, len(points))}
		for i := range points {
			s.values[i] = value(&points[i])
		}
		return s
	}
	rate := func(n int64) float64 { return float64(n) / step.Seconds() }
	quantile := func(q *Quantiles, d time.Duration) float64 {
		if q.Count == 0 {
			return math.NaN()
		}
		return float64(d)
	}
	executions := panel{
		title: "Executions per second", empty: "no executions",
		series: []series{
			of("offered", shapeSteps, styleOffered, func(p *Point) float64 { return rate(p.Offered) }),
			of("succeeded", shapeBars, styleSucceeded, func(p *Point) float64 { return rate(p.Succeeded) }),
			of("rejected", shapeBars, styleRejected, func(p *Point) float64 { return rate(p.Rejected) }),
			of("failed", shapeBars, styleFailed, func(p *Point) float64 { return rate(p.Failed) }),
		},
	}
	if calls {
		executions.title = "Executions and calls per second"
		executions.series = append(executions.series, of("calls of the service", shapeLine, styleCalls, func(p *Point) float64 { return rate(p.Calls) }))
	}
	largest := ""
	if step > r.Interval && len(points) < len(r.Series) {
		largest = "the largest of any " + formatTime(r.Interval) + " in each " + formatTime(step)
	}
	return []panel{
		executions,
		{
			title: "At the same time, at most", unit: unitCount, empty: "nothing waited or ran",
			series: []series{
				of("running in the service", shapeBack, styleRunning, func(p *Point) float64 { return float64(p.Running) }),
				of("waiting for a permit", shapeSteps, styleWaiting, func(p *Point) float64 { return float64(p.Waiting) }),
			},
		},
		{
			title: "Latency of what succeeded", note: largest, unit: unitTime, empty: "nothing succeeded",
			series: []series{
				of("p50", shapeLine, styleP50, func(p *Point) float64 { return quantile(&p.Latency, p.Latency.P50) }),
				of("p99", shapeLine, styleP99, func(p *Point) float64 { return quantile(&p.Latency, p.Latency.P99) }),
			},
		},
	}
}

// A Named is a Result with the name that a picture of several gives it.
type Named struct {
	Name   string
	Result *Result
}

// WriteResultsSVG writes a picture of several results beside each other, such as what different limiters do under the
// same load: for each, how many executions were admitted of the offered ones, per interval, with the same scales.
// The window with the most permits is marked, by the first of Result.Most. It returns an error if there are no results,
// or one is nil, or w does.
func WriteResultsSVG(w io.Writer, title string, results ...Named) error {
	if len(results) == 0 {
		return errors.New("simulate: a picture of results needs at least one")
	}
	f := &figure{title: shorten(printable(title), 150), columns: 2, height: 110}
	if len(results) == 1 {
		f.columns = 1
	}
	f.subtitle = []string{sameLoad(results)}
	all := make([]*panel, len(results))
	f.panels = make([]panel, len(results))
	for i, named := range results {
		if named.Result == nil {
			return fmt.Errorf("simulate: result %d (%q) is nil", i+1, named.Name)
		}
		f.panels[i] = named.panel(svgWidth / float64(f.columns))
		all[i] = &f.panels[i]
	}
	sameScale(all...)
	f.summary = "Executions offered and admitted over time."
	return f.write(w, "weir", svgWidth)
}

// sameLoad says what the results have in common.
func sameLoad(results []Named) string {
	r := results[0].Result
	if r == nil {
		return ""
	}
	for _, other := range results[1:] {
		if o := other.Result; o != nil && (o.Interval != r.Interval || o.Total.Requests != r.Total.Requests) {
			return "Executions per interval, with the same scales"
		}
	}
	points, step := r.merged(svgWidth / 4)
	if len(points) == 0 {
		return "Nothing happened."
	}
	return fmt.Sprintf("Executions per %s; %s in %s", formatStep(step, step), plural(r.Total.Requests, "request", "requests"), formatMoment(r.For))
}

// panel returns the panel of one of several results.
func (n *Named) panel(width float64) panel {
	r := n.Result
	points, step := r.merged(int(width / 2))
	back := series{name: "offered", shape: shapeBack, style: styleBack, step: step}
	front := series{name: "admitted", shape: shapeBars, style: styleAdmitted, step: step}
	for i := range points {
		back.values = append(back.values, float64(points[i].Offered))
		front.values = append(front.values, float64(points[i].Admitted))
	}
	p := panel{
		title: isolated(shorten(printable(n.Name), 80)), end: r.until(), unit: unitCount, series: []series{back, front}, empty: "no executions",
		note: fmt.Sprintf("%s of %s admitted", formatShare(r.Total.Admitted, r.Total.Offered), formatCount(r.Total.Offered)),
	}
	if len(r.Most) > 0 && r.Most[0].Permits > 0 {
		m := r.Most[0]
		p.spans = []span{{from: m.At, to: m.At + m.Window, text: "most in any " + formatTime(m.Window) + ": " + formatCount(m.Permits)}}
	}
	return p
}
