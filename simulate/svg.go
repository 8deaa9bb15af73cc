package simulate

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A paint is a colour by what it is for, in light and in dark. The attributes of the elements have the light one, so
// that a picture is right where style sheets are not allowed or not understood. The colours of series differ in lightness,
// and are told apart by all common kinds of colour blindness; hatching and dashes say the same.
type paint struct{ name, light, dark string }

var (
	paper     = paint{"paper", "#ffffff", "#12181f"}
	ink       = paint{"ink", "#1b2733", "#e6ecf1"}
	soft      = paint{"soft", "#52606d", "#a3b1bd"}
	grid      = paint{"grid", "#e1e6eb", "#2a343e"}
	shade     = paint{"shade", "#cdd5dd", "#3d4a57"} // what is behind other series
	blue      = paint{"blue", "#2b7bba", "#3a8fca"}
	orange    = paint{"orange", "#c2500a", "#f79a4b"}
	pale      = paint{"pale", "#fbe3d2", "#4a2f1b"} // behind orange hatching
	rose      = paint{"rose", "#f6d3e1", "#4d1f35"} // behind wine hatching
	wine      = paint{"wine", "#8c1348", "#ff9cc4"}
	teal      = paint{"teal", "#0a7566", "#54c9b2"}
	tealLight = paint{"teal-light", "#c5e6e0", "#1b453f"}

	paints = []paint{paper, ink, soft, grid, shade, blue, orange, pale, rose, wine, teal, tealLight}
)

func (p paint) fill() string { return fmt.Sprintf(` class="%s-fill" fill="%s"`, p.name, p.light) }

func (p paint) stroke() string {
	return fmt.Sprintf(` class="%s-line" fill="none" stroke="%s"`, p.name, p.light)
}

// svgStyle has the dark colours, for those who prefer them.
var svgStyle = func() string {
	var b strings.Builder
	b.WriteString("@media (prefers-color-scheme:dark){")
	for _, p := range paints {
		fmt.Fprintf(&b, ".%[1]s-fill{fill:%[2]s}.%[1]s-line{stroke:%[2]s}", p.name, p.dark)
	}
	b.WriteString(".halo{stroke:" + paper.dark + "}}")
	return b.String()
}()

// svgFont is the font of the system that shows the picture.
const svgFont = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', sans-serif"

// An svg is a picture that is being written.
type svg struct{ bytes.Buffer }

// add writes markup. Text in args must have been escaped.
func (s *svg) add(format string, args ...any) { _, _ = fmt.Fprintf(s, format, args...) }

// A label is a line of text in a picture.
type label struct {
	x, y   float64
	size   float64 // in pixels
	anchor string  // "start" if empty, "middle" or "end"
	bold   bool
	halo   bool // is readable on top of anything
	paint  paint
	text   string
}

func (s *svg) label(l label) {
	attributes := ""
	if l.anchor != "" {
		attributes += ` text-anchor="` + l.anchor + `"`
	}
	if l.bold {
		attributes += ` font-weight="600"`
	}
	text := escape(l.text)
	at := fmt.Sprintf(`<text x="%s" y="%s" font-size="%s"%s`, px(l.x), px(l.y), px(l.size), attributes)
	if l.halo { // a text of its own, because paint-order is not understood everywhere
		s.add(`%s class="halo" fill="none" stroke="%s" stroke-width="3.5" stroke-linejoin="round" aria-hidden="true">%s</text>`+"\n", at, paper.light, text)
	}
	s.add("%s%s>%s</text>\n", at, l.paint.fill(), text)
}

// box returns where a label is, about.
func (l *label) box() box {
	w := textWidth(l.text, l.size)
	b := box{left: l.x, right: l.x + w, top: l.y - l.size*0.85, bottom: l.y + l.size*0.3}
	switch l.anchor {
	case "middle":
		b.left, b.right = l.x-w/2, l.x+w/2
	case "end":
		b.left, b.right = l.x-w, l.x
	}
	return b
}

// A box is a part of a picture.
type box struct{ left, right, top, bottom float64 }

func (b box) overlaps(o box) bool {
	return b.left < o.right && o.left < b.right && b.top < o.bottom && o.top < b.bottom
}

// textWidth returns about how wide text is, and rather too much: which font there is, is not known.
func textWidth(text string, size float64) float64 {
	width := 0.0
	for _, r := range text {
		switch {
		case strings.ContainsRune(" .,:;'|il()[]", r):
			width += 0.34
		case strings.ContainsRune("mwMW%@", r):
			width += 0.92
		default:
			width += 0.58 * float64(runeCells(r))
		}
	}
	return width * size
}

// fitText returns text so that it is at most width wide. Where it leaves something out, it ends with an ellipsis.
func fitText(text string, size, width float64) string {
	const maxBytes = 1000 // even of marks that take no width
	if len(text) <= maxBytes && textWidth(text, size) <= width {
		return text
	}
	left := width - textWidth("…", size)
	for i, r := range text {
		if left -= textWidth(string(r), size); left < 0 || i > maxBytes {
			text = text[:i] + "…"
			break
		}
	}
	if strings.Count(text, isolateBegin) > strings.Count(text, isolateEnd) {
		text += isolateEnd
	}
	return text
}

// escape returns text for an element or an attribute.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder never fails
	return b.String()
}

// px returns v with one digit after the point at most.
func px(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "0"
	}
	text := strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
	if text == "-0" {
		return "0"
	}
	return text
}
