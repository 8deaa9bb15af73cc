// Package render writes reports of tables and charts as text, SVG and HTML. It knows nothing of simulations.
//
// Names in a report can be hostile, such as a key from an access log: what makes a report passes them to [Printable], and
// this package escapes them.
package render

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
)

// A Report is charts and tables under a title.
type Report struct {
	Title    string
	Subtitle []string
	Charts   []Chart
	Columns  int    // of Charts in a picture
	Footer   string // of a picture
	Tables   []Table
}

// textColumns is how many cells of a terminal a line of text takes at most.
const textColumns = 100

// A Table is a part of a report.
type Table struct {
	Caption string
	Note    string     // how to read it, below the caption
	Head    []Column   // none if the table is a list
	Rows    [][]string // as many cells as Head has; cells at the end can be missing
	List    []string   // sentences, below the rows
	Empty   string     // what stands in place of Rows and List if there are none
}

// A Column of a table. Numbers are set to the right, everything else to the left.
type Column struct {
	Name   string
	Text   bool // its cells are set to the left
	Header bool // its cells are the headers of their rows
	Key    bool // its cells can be long, and are shortened if the table is too wide
}

// Named reports whether some column has a name.
func (t Table) Named() bool {
	return slices.ContainsFunc(t.Head, func(c Column) bool { return c.Name != "" })
}

// WriteText writes the title and the tables.
func (p *Report) WriteText(w io.Writer) error {
	var b bytes.Buffer
	for _, text := range append([]string{p.Title}, p.Subtitle...) {
		writeLines(&b, text, "", "")
	}
	for _, t := range p.Tables {
		fmt.Fprintln(&b, "\n"+t.Caption)
		writeLines(&b, t.Note, "  ", "  ")
		if len(t.Rows) == 0 && len(t.List) == 0 {
			fmt.Fprintln(&b, "  "+t.Empty)
		}
		t.writeRows(&b)
		for _, text := range t.List {
			writeLines(&b, text, "  - ", "    ")
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// writeLines writes text in lines that begin with first and next.
func writeLines(b *bytes.Buffer, text, first, next string) {
	for _, line := range wrap(text, textColumns-len(first)) {
		fmt.Fprintln(b, first+line)
		first = next
	}
}

func (t *Table) writeRows(b *bytes.Buffer) {
	if len(t.Rows) == 0 {
		return
	}
	rows := t.Rows
	if t.Named() {
		head := make([]string, len(t.Head))
		for i, c := range t.Head {
			head[i] = c.Name
		}
		rows = append([][]string{head}, rows...)
	}
	widths := t.widths(rows)
	for _, row := range rows {
		var line strings.Builder
		for i, text := range row {
			text = Shorten(text, widths[i])
			pad := strings.Repeat(" ", max(widths[i]-Cells(text), 0))
			if t.Head[i].Text {
				text += pad
			} else {
				text = pad + text
			}
			line.WriteString("  " + text)
		}
		fmt.Fprintln(b, strings.TrimRight(Shorten(line.String(), textColumns), " "))
	}
}

// widths returns how wide the columns are. Where they would be too wide together, those of keys are narrower.
func (t *Table) widths(rows [][]string) []int {
	widths := make([]int, len(t.Head))
	total, keys := 0, 0
	for i, c := range t.Head {
		for _, row := range rows {
			if i < len(row) {
				widths[i] = max(widths[i], Cells(row[i]))
			}
		}
		total += widths[i] + 2
		if c.Key {
			keys++
		}
	}
	for i, c := range t.Head {
		if c.Key && total > textColumns {
			// What is too much, shared by the columns of keys that are left.
			narrower := min((total-textColumns+keys-1)/keys, max(widths[i]-8, 0))
			widths[i] -= narrower
			total -= narrower
			keys--
		}
	}
	return widths
}

// WriteSVG writes the title, the charts and the footer as a picture, which needs no script, font or other file and follows the
// viewer's choice of light or dark.
func (p *Report) WriteSVG(w io.Writer) error {
	var s svg
	const inner = pictureWidth - 2*edge
	y := edge
	lines := func(text, class string, size float64, limit int) {
		columns := columnsIn(inner, size)
		for _, line := range wrap(Shorten(text, limit*columns), columns) {
			y += size + 5
			s.text(edge, y-2, class, size, line)
		}
	}
	lines(p.Title, "ink-fill strong", sizeTitle, 1)
	for _, text := range p.Subtitle {
		lines(text, "soft-fill", sizeText, 3)
	}
	y += 8
	columns := max(p.Columns, 1)
	width := (inner - 20*float64(columns-1)) / float64(columns)
	for i := 0; i < len(p.Charts); i += columns {
		bottom := y
		for k := i; k < min(i+columns, len(p.Charts)); k++ {
			bottom = max(bottom, p.Charts[k].draw(&s, edge+float64(k-i)*(width+20), y, width))
		}
		y = bottom
	}
	lines(p.Footer, "soft-fill", sizeText, 3)
	_, err := io.WriteString(w, s.close(pictureWidth, y+10, p.Title, strings.Join(p.Subtitle, " "), chartStyle))
	return err
}

var (
	//go:embed page.html
	pageSource string
	//go:embed page.css
	pageStyle string

	page = template.Must(template.New("page").Funcs(template.FuncMap{
		"short": func(text string) string { return Shorten(text, 300) },
	}).Parse(pageSource))
)

// WriteHTML writes a page of one file without scripts. It forbids everything but its own style by a
// Content-Security-Policy. Where a server forbids that, too, the page is plain but complete.
func (p *Report) WriteHTML(w io.Writer) error {
	data := struct {
		*Report
		Policy   string
		Style    template.CSS
		Pictures []template.HTML
	}{Report: p, Style: template.CSS(pageStyle + chartStyle)} //nolint:gosec // it is ours
	sum := sha256.Sum256([]byte(data.Style))
	data.Policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
	for i := range p.Charts {
		data.Pictures = append(data.Pictures, template.HTML(p.Charts[i].picture())) //nolint:gosec // picture escapes
	}
	var b bytes.Buffer
	if err := page.Execute(&b, data); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}
