package simulate

import (
	"math"
	"strings"
	"time"
)

// A drawing is a panel that is being drawn.
type drawing struct {
	*svg
	*panel
	id          string
	left, width float64
	plotHeight  float64
	axis        float64 // how wide the values of the vertical axis are
	legend      bool

	plot  box   // where the plot is
	taken []box // where its labels are
	stack []float64
}

// draw draws the panel from y on, and returns where it ends.
func (d *drawing) draw(y float64) float64 {
	y += sizePanel
	d.label(label{x: d.left, y: y, size: sizePanel, bold: true, paint: ink, text: fitText(d.title, sizePanel, d.width)})
	if d.note != "" {
		y += sizeLabel + 5
		d.label(label{x: d.left, y: y, size: sizeLabel, paint: soft, text: fitText(d.note, sizeLabel, d.width)})
	}
	if d.legend {
		y = drawLegend(d.svg, d.series, d.left, y+7, d.width)
	}
	y += 10
	d.plot = box{left: d.left + d.axis + 7, right: d.left + d.width - 6, top: y, bottom: y + d.plotHeight}
	d.drawAxes()
	d.drawSpans()
	d.drawSeries()
	d.drawSpanLabels()
	d.drawLabels()
	return d.plot.bottom + sizeLabel + 8
}

// setScale sets the axis so that the largest value and the labels above it have room, and returns how wide its values are.
func (p *panel) setScale(plotHeight float64) float64 {
	top := p.top()
	if !(top > 0) || math.IsInf(top, 0) {
		top = 1
		if p.unit == unitTime {
			top = float64(time.Millisecond)
		}
	}
	room := 18.0
	if len(p.spans) > 0 {
		room = 26
	}
	p.scale = top * (1 + room/plotHeight)
	p.ticks = p.unit.ticks(p.scale, max(int(plotHeight/24), 2))
	width := 0.0
	for _, v := range p.ticks {
		width = max(width, textWidth(p.unit.format(v), sizeLabel))
	}
	return width
}

func (d *drawing) x(at time.Duration) float64 {
	return d.plot.left + (d.plot.right-d.plot.left)*min(max(float64(at)/float64(max(d.end, 1)), 0), 1)
}

func (d *drawing) y(v float64) float64 {
	return d.plot.bottom - (d.plot.bottom-d.plot.top)*min(max(v/d.scale, 0), 1)
}

// drawAxes draws the grid with its values.
func (d *drawing) drawAxes() {
	var lines strings.Builder
	for _, v := range d.ticks {
		y := d.y(v)
		lines.WriteString("M" + px(d.plot.left) + " " + px(y) + "H" + px(d.plot.right))
		d.label(label{x: d.plot.left - 5, y: y + 4, size: sizeLabel, anchor: "end", paint: soft, text: d.unit.format(v)})
	}
	times := unitTime.ticks(float64(d.end), max(int((d.plot.right-d.plot.left)/60), 2))
	for i, v := range times {
		x := d.x(toDuration(v))
		lines.WriteString("M" + px(x) + " " + px(d.plot.top) + "V" + px(d.plot.bottom+3))
		l := label{x: x, y: d.plot.bottom + sizeLabel + 4, size: sizeLabel, anchor: "middle", paint: soft, text: formatTime(toDuration(v))}
		if b := l.box(); i > 0 && b.right > d.plot.right+6 {
			l.x, l.anchor = d.plot.right+6, "end"
		}
		d.label(l)
	}
	d.add(`<path d="%s" stroke-width="1"%s/>`+"\n", lines.String(), grid.stroke())
}

// drawSpans draws what is marked, behind the series.
func (d *drawing) drawSpans() {
	for _, mark := range d.spans {
		left, right := d.x(mark.from), d.x(mark.to)
		d.add(`<rect x="%s" y="%s" width="%s" height="%s" fill-opacity="0.45"%s/>`+"\n",
			px(left), px(d.plot.top), px(max(right-left, 1)), px(d.plot.bottom-d.plot.top), grid.fill())
	}
}

// drawSpanLabels draws a bracket with a text for what is marked, in front of the series.
func (d *drawing) drawSpanLabels() {
	for _, mark := range d.spans {
		left, right := d.x(mark.from), max(d.x(mark.to), d.x(mark.from)+1)
		y := d.plot.top + 19
		d.add(`<path d="M%[1]s %[3]sv-5H%[2]sv5" stroke-width="1.5"%[4]s/>`+"\n", px(left), px(right), px(y), ink.stroke())
		l := label{x: (left + right) / 2, y: y - 9, size: sizeLabel, anchor: "middle", halo: true, paint: ink, text: mark.text}
		switch b := l.box(); {
		case b.left < d.plot.left:
			l.x, l.anchor = d.plot.left, ""
		case b.right > d.plot.right:
			l.x, l.anchor = d.plot.right, "end"
		}
		d.label(l)
		d.taken = append(d.taken, l.box())
	}
}

func (d *drawing) drawSeries() {
	drawn := false
	for _, front := range []bool{false, true} {
		for i := range d.series {
			s := &d.series[i]
			if line := s.shape == shapeSteps || s.shape == shapeLine; line != front {
				continue
			}
			path := d.path(s)
			if path == "" {
				continue
			}
			drawn = true
			if !front {
				fill := s.style.paint.fill()
				switch s.style.hatch {
				case hatched:
					fill = ` fill="url(#` + d.id + `-hatched)"`
				case crossed:
					fill = ` fill="url(#` + d.id + `-crossed)"`
				}
				d.add(`<path d="%s"%s/>`+"\n", path, fill)
				continue
			}
			if s.style.dash != "" { // a line on top of bars is seen on a lighter one
				d.add(`<path d="%s" stroke-width="%s" stroke-linejoin="round" stroke-opacity="0.8"%s/>`+"\n", path, px(s.style.width+2.5), paper.stroke())
			}
			d.add(`<path d="%s" stroke-width="%s" stroke-linejoin="round" stroke-linecap="round"%s%s/>`+"\n", path, px(s.style.width), s.style.dashes(), s.style.paint.stroke())
		}
	}
	if !drawn {
		l := label{x: (d.plot.left + d.plot.right) / 2, y: (d.plot.top+d.plot.bottom)/2 + 4, size: sizeText, anchor: "middle", halo: true, paint: soft, text: d.empty}
		d.label(l)
	}
}

func (s seriesStyle) dashes() string {
	if s.dash == "" {
		return ""
	}
	return ` stroke-dasharray="` + s.dash + `"`
}

// path returns the outline of a series, or "" if it has nothing to show. Bars are put on top of those before them.
func (d *drawing) path(s *series) string {
	some := false
	for _, v := range s.values {
		some = some || v > 0 || s.shape == shapeLine && v == 0
	}
	if !some {
		return ""
	}
	var b strings.Builder
	switch s.shape {
	case shapeBars, shapeBack:
		d.bars(&b, s)
	case shapeSteps:
		d.steps(&b, s)
	case shapeLine:
		open := false
		for i, v := range s.values {
			if math.IsNaN(v) {
				open = false
				continue
			}
			point := px(d.x(time.Duration(i)*s.step+s.step/2)) + " " + px(d.y(v))
			if open {
				b.WriteString("L" + point)
			} else {
				b.WriteString("M" + point + "h0") // a dot if no other follows
			}
			open = true
		}
	}
	return b.String()
}

// steps adds the outline of s to b. Where several steps are 0, there is none.
func (d *drawing) steps(b *strings.Builder, s *series) {
	last := 0.0
	for i, v := range s.values {
		if v > 0 && last == 0 {
			b.WriteString("M" + px(d.x(time.Duration(i)*s.step)) + " " + px(d.y(0)))
		}
		if v > 0 || last > 0 {
			if v != last {
				b.WriteString("V" + px(d.y(v)))
			}
			if next := i + 1; v > 0 && (next == len(s.values) || s.values[next] != v) {
				b.WriteString("H" + px(d.x(time.Duration(next)*s.step)))
			}
		}
		last = v
	}
	if last > 0 {
		b.WriteString("V" + px(d.y(0)))
	}
}

// bars adds the bars of s to b. Between bars that are wide enough is a gap. Narrow ones are one shape, so that no seams are
// seen.
func (d *drawing) bars(b *strings.Builder, s *series) {
	gap := 0.0
	if d.x(s.step)-d.plot.left >= 8 {
		gap = 1
	}
	if missing := len(s.values) - len(d.stack); missing > 0 {
		d.stack = append(d.stack, make([]float64, missing)...)
	}
	lower := func(i int) float64 {
		if s.shape == shapeBars {
			return d.stack[i]
		}
		return 0
	}
	for from := 0; from < len(s.values); {
		if !(s.values[from] > 0) {
			from++
			continue
		}
		to := from + 1
		for gap == 0 && to < len(s.values) && s.values[to] > 0 {
			to++
		}
		b.WriteString("M" + px(d.x(time.Duration(from)*s.step)) + " " + px(d.y(lower(from))))
		for i := from; i < to; i++ { // the upper edge
			if y := px(d.y(lower(i) + s.values[i])); i == from || i+1 == to || y != px(d.y(lower(i-1)+s.values[i-1])) {
				b.WriteString("V" + y)
			}
			if i+1 == to || px(d.y(lower(i+1)+s.values[i+1])) != px(d.y(lower(i)+s.values[i])) {
				b.WriteString("H" + px(d.x(time.Duration(i+1)*s.step)-gap))
			}
		}
		for i := to - 1; i >= from; i-- { // and the lower one, back
			if i+1 == to || px(d.y(lower(i))) != px(d.y(lower(i+1))) {
				b.WriteString("V" + px(d.y(lower(i))))
			}
			if i == from || px(d.y(lower(i-1))) != px(d.y(lower(i))) {
				b.WriteString("H" + px(d.x(time.Duration(i)*s.step)))
			}
		}
		b.WriteByte('Z')
		from = to
	}
	if s.shape == shapeBars {
		for i, v := range s.values {
			d.stack[i] += max(v, 0)
		}
	}
}
