package simulate

import (
	"math"
	"slices"
	"strings"
	"time"
)

// drawLegend draws what the series look like, in as many lines as it takes, and returns where it ends.
func drawLegend(s *svg, all []series, left, y, width float64) float64 {
	const swatch, gap = 22, 16
	x := left
	y += sizeLabel
	for i := range all {
		w := swatch + 6 + textWidth(all[i].name, sizeLabel)
		if x > left && x+w > left+width {
			x, y = left, y+sizeLabel+6
		}
		drawSwatch(s, &all[i], x, y-sizeLabel+2, swatch)
		s.label(label{x: x + swatch + 6, y: y, size: sizeLabel, paint: ink, text: all[i].name})
		x += w + gap
	}
	return y
}

// drawSwatch draws a piece of what the series looks like. Hatching is drawn, so that no pattern is needed.
func drawSwatch(s *svg, of *series, x, y, width float64) {
	const height = 10
	switch {
	case of.shape == shapeSteps || of.shape == shapeLine:
		s.add(`<path d="M%s %sh%s" stroke-width="%s" stroke-linecap="round"%s%s/>`+"\n", px(x), px(y+height/2), px(width), px(of.style.width), of.style.dashes(), of.style.paint.stroke())
	case of.style.hatch != solid:
		s.add(`<rect x="%s" y="%s" width="%s" height="%d"%s/>`+"\n", px(x), px(y), px(width), height, of.style.hatch.back().fill())
		var path strings.Builder
		for at := x; at+6 <= x+width; at += 7 {
			path.WriteString("M" + px(at) + " " + px(y+height) + "l6 -10")
			if of.style.hatch == crossed {
				path.WriteString("M" + px(at) + " " + px(y) + "l6 10")
			}
		}
		s.add(`<path d="%s" stroke-width="2"%s/>`+"\n", path.String(), of.style.paint.stroke())
	default:
		s.add(`<rect x="%s" y="%s" width="%s" height="%d"%s/>`+"\n", px(x), px(y), px(width), height, of.style.paint.fill())
	}
}

// drawLabels writes names next to what they name, where there is room: into bars, and at the peaks of lines with the value.
func (d *drawing) drawLabels() {
	for i := range d.series {
		if s := &d.series[i]; s.shape == shapeLine || s.shape == shapeSteps {
			d.labelPeak(s)
		}
	}
	steps := 0
	for i := range d.series {
		steps = max(steps, len(d.series[i].values))
	}
	lower := make([]float64, steps)
	for i := range d.series {
		if s := &d.series[i]; s.shape == shapeBars {
			d.labelBars(s, lower)
		} else if s.shape == shapeBack && len(d.stack) == len(s.values) && slices.Max(append(d.stack, 0)) == 0 {
			d.labelBars(s, make([]float64, len(s.values))) // nothing is in front of it
		}
	}
}

// labelPeak writes the name and the value of a line next to its highest point, where it hides least of all lines.
func (d *drawing) labelPeak(s *series) {
	peaks := s.peaks()
	if len(peaks) == 0 {
		return
	}
	text := s.name + " " + d.unit.format(s.values[peaks[0]])
	best, least := label{}, math.MaxInt
	for _, i := range peaks {
		x, y := d.x(time.Duration(i)*s.step+s.step/2), d.y(s.values[i])
		for _, l := range []label{
			{x: x, y: y - 5, anchor: "middle"}, {x: x + 7, y: y + 4}, {x: x - 7, y: y + 4, anchor: "end"}, {x: x, y: y + sizeLabel + 4, anchor: "middle"},
		} {
			l.size, l.halo, l.paint, l.text = sizeLabel, true, ink, text
			if hidden := d.hidden(&l); hidden < least && d.free(&l) {
				best, least = l, hidden
			}
		}
	}
	if least < math.MaxInt {
		d.place(best)
	}
}

// peaks returns the steps that are as high as the highest, or almost, beginning with the middle of those next to each
// other. There are none if s is 0.
func (s *series) peaks() []int {
	const most = 30
	at, highest := s.peak()
	if highest == 0 {
		return nil
	}
	first := int(at / max(s.step, 1))
	last := first
	for last+1 < len(s.values) && s.values[last+1] == highest {
		last++
	}
	peaks := []int{(first + last) / 2}
	for i, v := range s.values {
		if v >= highest*0.98 && len(peaks) < most {
			peaks = append(peaks, i)
		}
	}
	return peaks
}

// hidden returns how many pieces of lines a label would be on.
func (d *drawing) hidden(l *label) int {
	n, b := 0, l.box()
	for i := range d.series {
		s := &d.series[i]
		if s.shape != shapeLine && s.shape != shapeSteps {
			continue
		}
		for k := range len(s.values) - 1 {
			x := d.x(time.Duration(k)*s.step + s.step/2)
			if next := d.x(time.Duration(k+1)*s.step + s.step/2); next < b.left || x > b.right || math.IsNaN(s.values[k]+s.values[k+1]) {
				continue
			}
			upper, lower := d.y(max(s.values[k], s.values[k+1])), d.y(min(s.values[k], s.values[k+1]))
			if upper < b.bottom && lower > b.top {
				n++
			}
		}
	}
	return n
}

// free reports whether a label is inside the plot and not on another one.
func (d *drawing) free(l *label) bool {
	b := l.box()
	return b.left >= d.plot.left && b.right <= d.plot.right+6 && b.top >= d.plot.top-2 && b.bottom <= d.plot.bottom && !slices.ContainsFunc(d.taken, b.overlaps)
}

// place draws a label.
func (d *drawing) place(l label) {
	d.taken = append(d.taken, l.box())
	d.label(l)
}

// labelBars writes the name of a series into its bars, where they have most room for it. lower is where they begin; it
// becomes where they end.
func (d *drawing) labelBars(s *series, lower []float64) {
	width := textWidth(s.name, sizeLabel) + 6
	step := d.x(s.step) - d.plot.left
	span := len(s.values) + 1 // at most, because an int can have 32 bits
	if step > 0 {
		span = int(min(math.Ceil(width/step), float64(span)))
	}
	bestRoom, best := 0.0, label{}
	for i := 0; i+span <= len(s.values); i++ {
		top, bottom := d.plot.top, d.plot.bottom
		for k := i; k < i+span; k++ {
			top, bottom = max(top, d.y(lower[k]+max(s.values[k], 0))), min(bottom, d.y(lower[k]))
		}
		if room := bottom - top; room >= sizeLabel+4 && room > bestRoom+0.05 {
			l := label{x: d.x(time.Duration(i)*s.step) + float64(span)*step/2, y: (top+bottom)/2 + 4, size: sizeLabel, anchor: "middle", halo: true, paint: ink, text: s.name}
			if !slices.ContainsFunc(d.taken, l.box().overlaps) {
				bestRoom, best = room, l
			}
		}
	}
	if bestRoom > 0 {
		d.place(best)
	}
	for i, v := range s.values {
		lower[i] += max(v, 0)
	}
}
