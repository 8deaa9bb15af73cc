package dashboard

import (
	"embed"
	"fmt"
	"html/template"
	"reflect"
	"strings"
	texttemplate "text/template"
	"time"

	"github.com/weir-go/weir/internal/durationtext"
)

// The formats of a page.
type format string

const (
	formatHTML format = "html"
	formatJSON format = "json"
	formatText format = "txt"
)

// contentTypes are the content types of the formats.
var contentTypes = map[format]string{
	formatHTML: "text/html; charset=utf-8",
	formatJSON: "application/json",
	formatText: "text/plain; charset=utf-8",
}

//go:embed templates assets
var embedded embed.FS

// The templates of pages have the same names in both formats, and get the same data: those in HTML as the Data of a page.
var (
	htmlTemplates = template.Must(template.New("").Funcs(functions).ParseFS(embedded, "templates/*.html"))
	textTemplates = texttemplate.Must(texttemplate.New("").Funcs(functions).ParseFS(embedded, "templates/*.txt"))
)

// functions are those of the templates.
var functions = template.FuncMap{
	"clean":      printable,
	"cleanLines": printableLines,
	"name":       func(s string) string { return printable(shorten(s, 120)) },
	"cell":       cell,
	"lower":      strings.ToLower,
	"spaces":     func(s string) string { return strings.ReplaceAll(printable(s), "_", " ") },
	"iso":        func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"clock":      clock,
	"ago":        ago,
	"next": func(now, at time.Time) string {
		if !at.After(now) {
			return "now"
		}
		return "in " + durationtext.Of(at.Sub(now).Round(time.Second))
	},
	"at":       func(now, at time.Time) moment { return moment{now, at} },
	"duration": func(d time.Duration) string { return durationtext.Of(roundUp(d)) },
	"rate":     rateText,
	"positive": func(rate *float64) bool { return orZero(rate) > 0 },
	"count":    func(n reflect.Value) string { return countText(reflect.Indirect(n).Int()) },
	"keys":     func(n *int) string { return keysText(int64(*n)) },
	"spark":    spark,
}

// A moment is a time, and the time of the page that shows it.
type moment struct{ Now, At time.Time }

// spark draws the history of a limiter: what was granted, if that is known, and above it what was rejected.
func spark(l limiterState) template.HTML {
	const height = 24
	most := int64(1)
	for _, c := range l.History {
		most = max(most, orZero(c.Granted)+orZero(c.Rejected))
	}
	var granted, rejected strings.Builder
	for i, c := range l.History {
		x := 2*i + 1 + 2*(columns-len(l.History))
		g := int(float64(orZero(c.Granted)) / float64(most) * height)
		r := int(float64(orZero(c.Rejected)) / float64(most) * height)
		if orZero(c.Rejected) > 0 {
			r = max(r, 1)
		}
		if g = max(min(g, height-r), 0); orZero(c.Granted) > 0 && g == 0 && r < height {
			g = 1
		}
		if g > 0 {
			fmt.Fprintf(&granted, "M%d %dv-%d", x, height, g)
		}
		if r > 0 {
			fmt.Fprintf(&rejected, "M%d %dv-%d", x, height-g, r)
		}
	}
	text := fmt.Sprintf("at most %s a second", rateText(float64(most)/columnLength.Seconds()))
	if granted.Len()+rejected.Len() == 0 {
		text = "nothing counted in the last five minutes"
	}
	//nolint:gosec // only numbers
	return template.HTML(fmt.Sprintf(`<svg class="spark" role="img" aria-label="%[1]s" preserveAspectRatio="none" viewBox="0 0 %[2]d %[3]d">`+
		`<title>%[1]s</title><path class="granted" d="%[4]s"/><path class="rejected" d="%[5]s"/></svg>`,
		template.HTMLEscapeString(text), 2*columns, height, granted.String(), rejected.String()))
}
