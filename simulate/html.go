package simulate

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"slices"
)

//go:embed page.html
var pageSource string

//go:embed page.css
var pageStyle string

var page = template.Must(template.New("page").Parse(pageSource))

// WriteHTML writes r as a page: the picture of [Result.WriteSVG] and the tables of [Result.WriteTable]. The page is one file
// without scripts, follows the viewer's choice of light or dark, and can be read on a phone. It forbids everything but its
// own style by a Content-Security-Policy. Where a server forbids that, too, the page is plain but complete.
func (r *Result) WriteHTML(w io.Writer) error {
	p := r.report()
	p.figures = []figure{*r.figure()}
	return p.writeHTML(w)
}

// WriteHTML writes c as a page. See [Result.WriteHTML].
func (c *Comparison) WriteHTML(w io.Writer) error {
	p := c.report()
	p.figures = []figure{*c.figure()}
	return p.writeHTML(w)
}

// A pageData is what the template needs.
type pageData struct {
	Title    string
	Subtitle []string
	Policy   string
	Style    template.CSS
	Wide     template.HTML // the picture
	Narrow   template.HTML // the picture for a phone
	Tables   []pageTable
}

type pageTable struct {
	ID                   int
	Caption, Note, Empty string
	Head                 []pageColumn
	Named                bool // some column has a name
	Rows                 [][]pageCell
	List                 []string
}

type pageColumn struct {
	Name string
	Text bool
	Key  bool
}

type pageCell struct {
	pageColumn
	Header bool
	Inner  bool // belongs to what is above it
	Value  string
}

// cellOf returns the cell of a row in a column.
func cellOf(c column, text string) pageCell {
	cell := pageCell{pageColumn: pageColumn{Text: c.text, Key: c.key}, Header: c.header, Value: text}
	if len(text) > 2 && text[:2] == "  " {
		cell.Inner, cell.Value = true, text[2:]
	}
	return cell
}

func (p *report) writeHTML(w io.Writer) error {
	data := pageData{
		Title: p.title, Subtitle: p.subtitle, Style: template.CSS(pageStyle), //nolint:gosec // it is ours
		Policy: "default-src 'none'; style-src " + styleHash(pageStyle) + " " + styleHash(svgStyle) + "; base-uri 'none'; form-action 'none'",
	}
	for i := range p.figures {
		p.figures[i].bare = true
		// The widths differ in the sizes of text, so a phone gets a picture of its own.
		data.Wide += template.HTML(p.figures[i].draw("wide", svgWidth))        //nolint:gosec // draw escapes
		data.Narrow += template.HTML(p.figures[i].draw("narrow", narrowWidth)) //nolint:gosec // draw escapes
	}
	for i := range p.tables {
		data.Tables = append(data.Tables, p.tables[i].page(i+1))
	}
	var b bytes.Buffer
	if err := page.Execute(&b, data); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// styleHash returns what a Content-Security-Policy calls a style.
func styleHash(style string) string {
	sum := sha256.Sum256([]byte(style))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func (t *table) page(id int) pageTable {
	// On a phone the last columns are out of sight, so what a row is about comes first. In text it comes last where names
	// can be long.
	order := make([]int, len(t.head))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch first, second := t.head[a].header, t.head[b].header; {
		case first == second:
			return 0
		case first:
			return -1
		}
		return 1
	})
	p := pageTable{ID: id, Caption: t.caption, Note: t.note, List: t.list}
	if len(t.rows) == 0 && len(t.list) == 0 {
		p.Empty = t.empty
	}
	for _, i := range order {
		c := t.head[i]
		p.Head = append(p.Head, pageColumn{Name: c.name, Text: c.text, Key: c.key})
		p.Named = p.Named || c.name != ""
	}
	for _, row := range t.rows {
		cells := make([]pageCell, 0, len(t.head))
		for _, i := range order {
			text := ""
			if i < len(row) {
				text = row[i]
			}
			if t.head[i].key {
				text = shorten(text, 300)
			}
			cells = append(cells, cellOf(t.head[i], text))
		}
		p.Rows = append(p.Rows, cells)
	}
	return p
}
