package render

import (
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Chart is a plot over time.
type Chart struct {
	Title  string
	Note   string // below the title
	Unit   Unit   // of the vertical axis
	Top    float64
	Until  time.Duration // the horizontal axis begins at 0
	Step   time.Duration // how long each value of a series lasts
	Series []Series
	Mark   Mark
	Empty  string // what stands in the plot if there are no series with data
}

// A Shape is how a series is drawn.
type Shape int

// The shapes.
const (
	Bars Shape = iota // stacked on the bars of the series before it
	Line              // in front of all bars
)

// A Series is what one thing did over time. Each value is that of a step, of which the first begins at 0.
type Series struct {
	Name   string
	Shape  Shape
	Color  Color
	Values []float64 // NaN where there is none
}

// A Mark is a part of a Chart's time with a text. The zero Mark is none.
type Mark struct {
	From, To time.Duration
	Text     string
}

// A Color is the name of a color, which is another one in the dark.
type Color string

// The colors of series. They differ in lightness, and are told apart by all common kinds of color blindness.
const (
	Black  Color = "ink"
	Blue   Color = "blue"
	Orange Color = "orange"
	Wine   Color = "wine"
	Teal   Color = "teal"
	Pale   Color = "pale"
	Grey   Color = "grey"
)

// chartStyle has the colors, in light and in dark.
var chartStyle = func() string {
	var light, dark strings.Builder
	for _, c := range [][3]string{
		{"paper", "#ffffff", "#12181f"}, {"soft", "#52606d", "#a3b1bd"}, {"grid", "#e1e6eb", "#2a343e"},
		{string(Black), "#1b2733", "#e6ecf1"}, {string(Grey), "#cdd5dd", "#3d4a57"},
		{string(Blue), "#2b7bba", "#3a8fca"}, {string(Orange), "#f0882f", "#f7a65c"}, {string(Wine), "#8c1348", "#e0578f"},
		{string(Teal), "#0a7566", "#54c9b2"}, {string(Pale), "#c5e6e0", "#1b453f"},
	} {
		const rule = ".%[1]s-fill{fill:%[2]s}.%[1]s-line{fill:none;stroke:%[2]s}"
		fmt.Fprintf(&light, rule, c[0], c[1])
		fmt.Fprintf(&dark, rule, c[0], c[2])
	}
	const shapes = ".strong{font-weight:600}.middle{text-anchor:middle}.end{text-anchor:end}.bars{shape-rendering:crispEdges}" +
		".wide{stroke-width:2;stroke-linejoin:round;stroke-linecap:round}"
	return shapes + light.String() + "@media (prefers-color-scheme:dark){" + dark.String() + "}"
}()

// SameScale gives the charts the same axes.
func SameScale(charts ...*Chart) {
	var top float64
	var until time.Duration
	for _, c := range charts {
		top, until = max(top, c.top()), max(until, c.Until)
	}
	for _, c := range charts {
		c.Top, c.Until = top, until
	}
}

// top returns the largest value of the chart.
func (c *Chart) top() float64 {
	top := c.Top
	var stack []float64
	for i := range c.Series {
		upper := c.Series[i].Values
		if c.Series[i].Shape == Bars {
			stack = stacked(stack, upper)
			upper = stack
		}
		for _, v := range upper {
			if v > top { // which NaN is not
				top = v
			}
		}
	}
	return top
}

// stacked returns where bars end that begin where those before them end.
func stacked(below, values []float64) []float64 {
	above := make([]float64, max(len(values), len(below)))
	copy(above, below)
	for i, v := range values {
		above[i] += max(v, 0)
	}
	return above
}

const (
	pictureWidth = 800.0 // of a Report
	chartWidth   = 420.0 // of a Chart on a page
	plotHeight   = 120.0
	edge         = 16.0 // around everything
	axisWidth    = 46.0 // of the values of the vertical axis
	sizeTitle    = 17.0 // of text, in pixels
	sizeText     = 12.5
)

// columnsIn returns how many cells of text of that size fit, about: which font there is, is not known.
func columnsIn(width, size float64) int { return int(width / size / 0.56) }

// picture returns the chart alone, for a page that has the style.
func (c *Chart) picture() string {
	var s svg
	bottom := c.draw(&s, edge, edge/2, chartWidth-2*edge)
	return s.close(chartWidth, bottom, c.Title, c.Note, "")
}

// A plot is a Chart that is being drawn, with the place of its axes.
type plot struct {
	*Chart
	*svg
	left, right, upper, lower float64
	scale                     float64 // the value at the upper edge
}

// draw draws the chart from x and y on, and returns where it ends.
func (c *Chart) draw(s *svg, x, y, width float64) float64 {
	columns := columnsIn(width, sizeText)
	y += sizeText + 2
	s.text(x, y, "ink-fill strong", sizeText, Shorten(c.Title, columns-5)) // which is wider in bold
	if c.Note != "" {
		y += sizeText + 4
		s.text(x, y, "soft-fill", sizeText-1, Shorten(c.Note, columns))
	}
	y = c.drawLegend(s, x, y+6, width) + 8
	p := plot{Chart: c, svg: s, left: x + axisWidth, right: x + width - 8, upper: y, lower: y + plotHeight}
	top := c.top()
	if !(top > 0) {
		top = 1
		if c.Unit == Nanoseconds {
			top = float64(time.Millisecond)
		}
	}
	p.scale = top * 1.06
	if c.Mark != (Mark{}) {
		p.scale = top * 1.25
	}
	p.drawAxes()
	p.drawSeries()
	p.drawMark()
	return p.lower + sizeText + 14
}

// drawLegend draws what the series look like, in as many lines as it takes, and returns where it ends.
func (c *Chart) drawLegend(s *svg, left, y, width float64) float64 {
	x := left
	y += sizeText
	for i := range c.Series {
		of := &c.Series[i]
		w := 40 + float64(Cells(of.Name))*sizeText*0.56
		if x > left && x+w > left+width {
			x, y = left, y+sizeText+5
		}
		if of.Shape == Bars {
			s.add(`<rect class="%s-fill" x="%s" y="%s" width="18" height="9"/>`, of.Color, px(x), px(y-9))
		} else {
			s.add(`<path class="%s-line wide" d="M%s %sh18"/>`, of.Color, px(x), px(y-4))
		}
		s.text(x+23, y, "ink-fill", sizeText-1, of.Name)
		x += w
	}
	return y
}

func (p *plot) x(at time.Duration) string { return px(p.at(at)) }

func (p *plot) at(at time.Duration) float64 {
	return p.left + (p.right-p.left)*min(max(float64(at)/float64(max(p.Until, 1)), 0), 1)
}

func (p *plot) y(v float64) string { return px(p.height(v)) }

func (p *plot) height(v float64) float64 {
	return p.lower - (p.lower-p.upper)*min(max(v/p.scale, 0), 1)
}

// drawAxes draws the grid with its values.
func (p *plot) drawAxes() {
	var lines strings.Builder
	for _, v := range p.Unit.ticks(p.scale, 5) {
		lines.WriteString("M" + px(p.left) + " " + p.y(v) + "H" + px(p.right))
		p.text(p.left-5, p.height(v)+4, "soft-fill end", sizeText-1, p.Unit.format(v))
	}
	for _, v := range Nanoseconds.ticks(float64(p.Until), max(int((p.right-p.left)/64), 2)) {
		x := p.at(duration(v))
		lines.WriteString("M" + px(x) + " " + px(p.upper) + "V" + px(p.lower+3))
		p.text(min(x, p.right-4), p.lower+sizeText+3, "soft-fill middle", sizeText-1, Time(duration(v)))
	}
	p.add(`<path class="grid-line" d="%s"/>`, lines.String())
}

// drawMark draws a bracket and its text, for which the scale leaves room.
func (p *plot) drawMark() {
	if p.Mark == (Mark{}) {
		return
	}
	from, to := p.at(p.Mark.From), max(p.at(p.Mark.To), p.at(p.Mark.From)+1)
	p.add(`<path class="ink-line" d="M%s %sV%sH%sV%s"/>`, px(from), px(p.lower), px(p.upper+sizeText+4), px(to), px(p.lower))
	half := float64(Cells(p.Mark.Text)) * sizeText * 0.28
	x := min(max((from+to)/2, p.left+half), p.right-half)
	p.text(x, p.upper+sizeText, "ink-fill middle", sizeText-1, p.Mark.Text)
}

// drawSeries draws bars first, and then lines.
func (p *plot) drawSeries() {
	drawn := false
	for _, shape := range []Shape{Bars, Line} {
		var below []float64
		for i := range p.Series {
			s := &p.Series[i]
			if s.Shape != shape {
				continue
			}
			path, class := p.line(s), "-line wide"
			if shape == Bars {
				path, class = p.bars(s, below), "-fill bars"
				below = stacked(below, s.Values)
			}
			if path != "" {
				p.add(`<path class="%s%s" d="%s"/>`, s.Color, class, path)
				drawn = true
			}
		}
	}
	if !drawn {
		p.text((p.left+p.right)/2, (p.upper+p.lower)/2+4, "soft-fill middle", sizeText, p.Empty)
	}
}

// bars returns the bars of s, which begin at the values below.
func (p *plot) bars(s *Series, below []float64) string {
	var b strings.Builder
	for i, v := range s.Values {
		if !(v > 0) {
			continue
		}
		from := 0.0
		if i < len(below) {
			from = below[i]
		}
		fmt.Fprintf(&b, "M%s %sV%sH%sV%sZ", p.x(p.begin(i)), p.y(from), p.y(from+v), p.x(p.begin(i+1)), p.y(from))
	}
	return b.String()
}

// line returns a line through the middles of the steps, with gaps where there are no values.
func (p *plot) line(s *Series) string {
	var b strings.Builder
	open := false
	for i, v := range s.Values {
		if math.IsNaN(v) {
			open = false
			continue
		}
		point := p.x(p.begin(i)+p.Step/2) + " " + p.y(v)
		if open {
			b.WriteString("L" + point)
		} else {
			b.WriteString("M" + point + "h0") // a dot if no other follows
		}
		open = true
	}
	return b.String()
}

// begin returns when a step begins.
func (c *Chart) begin(i int) time.Duration { return duration(float64(c.Step) * float64(i)) }

// An svg is the elements of a picture.
type svg struct{ strings.Builder }

// add adds an element. Text in args must have been escaped.
func (s *svg) add(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }

// text adds a line of text.
func (s *svg) text(x, y float64, class string, size float64, text string) {
	s.add(`<text class="%s" x="%s" y="%s" font-size="%s">%s</text>`, class, px(x), px(y), px(size), escape(text))
}

// close returns the picture.
func (s *svg) close(width, height float64, title, description, style string) string {
	var whole svg
	whole.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]s %[2]s" width="%[1]s" height="%[2]s" role="img" font-family="system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', sans-serif">`, px(width), px(height))
	whole.add("<title>%s</title>\n<desc>%s</desc>", escape(title), escape(description))
	if style != "" {
		whole.add("<style>%s</style>", style)
	}
	whole.add(`<rect class="paper-fill" width="%s" height="%s" rx="8"/>`, px(width), px(height))
	whole.WriteString(s.String())
	whole.add("</svg>")
	return whole.String()
}

// escape returns text for an element or an attribute.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder never fails
	return b.String()
}

// px returns v with one digit after the point at most.
func px(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10+0, 'f', -1, 64) }

// A Unit is what an axis counts.
type Unit int

// The units of vertical axes; a horizontal axis is in Nanoseconds.
const (
	PerSecond   Unit = iota
	Whole            // numbers
	Nanoseconds      // which the axis shows as durations
)

// format returns v as an axis shows it.
func (u Unit) format(v float64) string {
	if u == Nanoseconds {
		return Duration(duration(v))
	}
	return Number(v)
}

// duration returns the duration of v nanoseconds, without overflow.
func duration(v float64) time.Duration {
	if v >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(v)
}

// ticks returns round values from 0 to limit, about n of them after 0.
func (u Unit) ticks(limit float64, n int) []float64 {
	values := []float64{0}
	if !(limit > 0) {
		return values
	}
	step := u.step(limit / float64(n) * 0.95)
	for i := 1; float64(i)*step <= limit; i++ {
		values = append(values, float64(i)*step)
	}
	return values
}

// step returns the smallest round step that is at least the given one.
func (u Unit) step(least float64) float64 {
	if u == Nanoseconds && least > float64(10*time.Second) {
		const day = 24 * time.Hour
		for _, step := range []time.Duration{
			15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
			30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day,
		} {
			if float64(step) >= least {
				return float64(step)
			}
		}
		return PerSecond.step(least/float64(day)) * float64(day)
	}
	if u == Whole && least < 1 {
		return 1
	}
	size := math.Pow(10, math.Floor(math.Log10(least)))
	for _, factor := range []float64{1, 2, 5} {
		if size*factor >= least {
			return size * factor
		}
	}
	return size * 10
}
