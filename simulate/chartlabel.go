package simulate

import (
	"cmp"
	"math"
	"slices"
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
	case of.style.hatched:
		s.add(`<rect x="%s" y="%s" width="%s" height="%d"%s/>`+"\n", px(x), px(y), px(width), height, pale.fill())
		path := ""
		for at := x; at+6 <= x+width; at += 7 {
			path += "M" + px(at) + " " + px(y+height) + "l6 -10"
		}
		s.add(`<path d="%s" stroke-width="2"%s/>`+"\n", path, of.style.paint.stroke())
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

// labelPeak writes the name and the value of a line at its highest point, or at one of the next where there is room.
func (d *drawing) labelPeak(s *series) {
	order := make([]int, 0, len(s.values))
	for i, v := range s.values {
		if v > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.values[b], s.values[a]) })
	same := 0
	for same+1 < len(order) && order[same+1] == order[same]+1 && s.values[order[same+1]] == s.values[order[0]] {
		same++
	}
	if same > 0 {
		order = slices.Insert(order, 0, order[same/2]) // the middle, if it is flat
	}
	for _, i := range order[:min(len(order), 40)] {
		v := s.values[i]
		if v < s.values[order[0]]*0.97 {
			return // a label elsewhere would say another value
		}
		x, y := d.x(time.Duration(i)*s.step+s.step/2), d.y(v)
		l := label{x: x, y: y - 5, size: sizeLabel, anchor: "middle", halo: true, paint: ink, text: s.name + " " + d.unit.format(s.values[order[0]])}
		if b := l.box(); b.left < d.plot.left+2 {
			l.x, l.anchor = d.plot.left+2, ""
		} else if b.right > d.plot.right-2 {
			l.x, l.anchor = d.plot.right-2, "end"
		}
		if l.box().top < d.plot.top-8 {
			l.y = y + sizeLabel + 3
		}
		if d.place(l) {
			return
		}
	}
}

// place draws a label where no other is, and reports whether it did.
func (d *drawing) place(l label) bool {
	b := l.box()
	if b.bottom > d.plot.bottom || slices.ContainsFunc(d.taken, b.overlaps) {
		return false
	}
	d.taken = append(d.taken, b)
	d.label(l)
	return true
}

// labelBars writes the name of a series into its bars, where they have most room for it. lower is where they begin; it
// becomes where they end.
func (d *drawing) labelBars(s *series, lower []float64) {
	width := textWidth(s.name, sizeLabel) + 6
	step := d.x(s.step) - d.plot.left
	span := len(s.values) + 1
	if step > 0 {
		span = int(math.Ceil(width / step))
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
