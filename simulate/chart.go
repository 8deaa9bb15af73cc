package simulate

import (
	"io"
	"math"
	"strings"
	"time"
)

// A figure is a picture of panels in a grid. All pictures of this package are figures: one column of panels shows a
// result, two show a comparison, and more panels show several results under the same load.
type figure struct {
	title    string
	subtitle []string
	summary  string // what the picture shows, for a reader who does not see it
	footer   string
	columns  int
	panels   []panel // row by row
	height   float64 // of a panel's plot, in pixels
	bare     bool    // has no titles and no footer, because it is on a page that has them
}

// A panel is a plot over time.
type panel struct {
	title  string
	note   string // below the title
	unit   unit   // of the vertical axis
	limit  float64
	end    time.Duration // the horizontal axis begins at 0
	series []series
	spans  []span
	empty  string // what stands in the plot if there are no series with data

	scale float64 // the value at the upper edge
	ticks []float64
}

// A shape is how a series is drawn.
type shape int

const (
	shapeBars  shape = iota // on top of the bars of the series before it
	shapeBack               // bars behind all other series
	shapeSteps              // the outline of bars
	shapeLine
)

// A series is what one thing did over time. Each value is that of a step, of which the first begins at 0.
type series struct {
	name   string
	shape  shape
	style  seriesStyle
	step   time.Duration
	values []float64 // NaN where there is none
}

// A seriesStyle tells a series apart from the others, by more than its colour.
type seriesStyle struct {
	paint paint
	hatch hatch
	dash  string
	width float64
}

// A hatch is what bars are filled with.
type hatch int

const (
	solid   hatch = iota
	hatched       // lines in one direction
	crossed       // lines in two
)

// back returns what is behind the lines.
func (h hatch) back() paint {
	if h == crossed {
		return rose
	}
	return pale
}

// A span marks a part of a panel's time.
type span struct {
	from, to time.Duration
	text     string
}

// sameScale gives the panels the same axes.
func sameScale(panels ...*panel) {
	var limit float64
	var end time.Duration
	for _, p := range panels {
		limit, end = max(limit, p.top()), max(end, p.end)
	}
	for _, p := range panels {
		p.limit, p.end = limit, end
	}
}

// top returns the largest value that the panel shows.
func (p *panel) top() float64 {
	top := p.limit
	var stack []float64
	for i := range p.series {
		s := &p.series[i]
		for k, v := range s.values {
			if math.IsNaN(v) {
				continue
			}
			if s.shape == shapeBars {
				if k >= len(stack) {
					stack = append(stack, make([]float64, k+1-len(stack))...)
				}
				stack[k] += v
				v = stack[k]
			}
			top = max(top, v)
		}
	}
	return top
}

// write writes the figure as SVG, so wide. Several figures of one page need different ids.
func (f *figure) write(w io.Writer, id string, width float64) error {
	_, err := w.Write(f.draw(id, width))
	return err
}

// Sizes of text, in pixels.
const (
	sizeTitle  = 17
	sizeText   = 12.5
	sizePanel  = 13.5
	sizeLabel  = 11.5
	figureEdge = 16 // around everything
)

func (f *figure) draw(id string, width float64) []byte {
	var body svg
	columns := max(f.columns, 1)
	if width < 600 {
		columns = 1
	}
	y := float64(figureEdge)
	inner := width - 2*figureEdge
	y = f.drawHead(&body, y, inner)
	const gap = 20
	panelWidth := (inner - gap*float64(columns-1)) / float64(columns)
	axis := 0.0
	for i := range f.panels {
		axis = max(axis, f.panels[i].setScale(f.height))
	}
	for i := 0; i < len(f.panels); i += columns {
		bottom := y
		for k := range min(columns, len(f.panels)-i) {
			d := drawing{
				svg: &body, id: id, panel: &f.panels[i+k], left: figureEdge + float64(k)*(panelWidth+gap), width: panelWidth,
				plotHeight: f.height, axis: axis, legend: f.sharedLegend() == nil,
			}
			bottom = max(bottom, d.draw(y))
		}
		y = bottom + 14
	}
	for _, line := range wrapText(f.footer, sizeLabel, inner, 3) {
		if f.bare {
			break
		}
		y += 4
		body.label(label{x: figureEdge, y: y + sizeLabel, size: sizeLabel, paint: soft, text: line})
		y += sizeLabel
	}
	height := math.Ceil(y + figureEdge - 4)

	var s svg
	s.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" role="img" aria-labelledby="%s-title %s-desc" font-family="%s">`+"\n",
		px(width), px(height), px(width), px(height), id, id, svgFont)
	s.add("<title id=\"%s-title\">%s</title>\n<desc id=\"%s-desc\">%s</desc>\n<style>%s</style>\n", id, escape(f.title), id, escape(f.describe()), svgStyle)
	s.add(`<defs><pattern id="%s-hatched" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5"%s/><path d="M1 0v5" stroke-width="2"%s/></pattern>`+"\n",
		id, hatched.back().fill(), orange.stroke())
	s.add(`<pattern id="%s-crossed" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5"%s/><path d="M0 1h5M1 0v5" stroke-width="1.6"%s/></pattern></defs>`+"\n",
		id, crossed.back().fill(), wine.stroke())
	s.add(`<rect x="0.5" y="0.5" width="%s" height="%s" rx="8"%s/>`+"\n", px(width-1), px(height-1), paper.fill())
	s.add(`<rect x="0.5" y="0.5" width="%s" height="%s" rx="8"%s/>`+"\n", px(width-1), px(height-1), grid.stroke())
	s.Write(body.Bytes())
	s.add("</svg>\n")
	return s.Bytes()
}

// drawHead draws the titles, and the legend if all panels have the same. It returns where it ends.
func (f *figure) drawHead(s *svg, y, width float64) float64 {
	if f.bare {
		return y
	}
	for _, line := range wrapText(f.title, sizeTitle, width, 2) {
		y += sizeTitle + 4
		s.label(label{x: figureEdge, y: y - 4, size: sizeTitle, bold: true, paint: ink, text: line})
	}
	for _, text := range f.subtitle {
		for _, line := range wrapText(text, sizeText, width, 3) {
			y += sizeText + 5
			s.label(label{x: figureEdge, y: y - 2, size: sizeText, paint: soft, text: line})
		}
	}
	if shared := f.sharedLegend(); shared != nil {
		y = drawLegend(s, shared, figureEdge, y+8, width)
	}
	return y + 12
}

// sharedLegend returns the series of all panels if they are the same, and nil if there is nothing to share.
func (f *figure) sharedLegend() []series {
	if len(f.panels) < 2 {
		return nil
	}
	first := f.panels[0].series
	for i := range f.panels[1:] {
		other := f.panels[i+1].series
		if len(other) != len(first) {
			return nil
		}
		for k := range other {
			if other[k].name != first[k].name {
				return nil
			}
		}
	}
	return first
}

// describe returns what the picture shows, in words.
func (f *figure) describe() string {
	var b strings.Builder
	b.WriteString(f.summary)
	for i := range f.panels {
		p := &f.panels[i]
		b.WriteString(" " + p.title + ":")
		names := 0
		for k := range p.series {
			if at, v := p.series[k].peak(); v > 0 {
				if names++; names > 1 {
					b.WriteByte(',')
				}
				b.WriteString(" " + p.series[k].name + " at most " + p.unit.format(v) + " at " + formatDuration(at))
			}
		}
		if names == 0 {
			b.WriteString(" nothing")
		}
		for _, mark := range p.spans {
			b.WriteString("; " + mark.text + " from " + formatDuration(mark.from))
		}
		b.WriteByte('.')
	}
	return strings.TrimSpace(b.String())
}

// peak returns the largest value and where its step begins.
func (s *series) peak() (time.Duration, float64) {
	at, largest := 0, 0.0
	for i, v := range s.values {
		if v > largest {
			at, largest = i, v
		}
	}
	return time.Duration(at) * s.step, largest
}

// wrapText breaks text into at most limit lines that are at most width wide.
func wrapText(text string, size, width float64, limit int) []string {
	var lines []string
	line := ""
	words := strings.Fields(text)
	for i, word := range words {
		joined := strings.TrimPrefix(line+" "+word, " ")
		if line == "" || textWidth(joined, size) <= width {
			line = joined
			continue
		}
		if len(lines) == limit-1 {
			line += " " + strings.Join(words[i:], " ")
			break
		}
		lines, line = append(lines, fitText(line, size, width)), word
	}
	if line != "" {
		lines = append(lines, fitText(line, size, width))
	}
	return lines
}
