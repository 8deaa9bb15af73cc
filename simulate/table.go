package simulate

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// tableColumns is how many columns of a terminal a table takes at most.
const tableColumns = 100

// A table is a part of a report. As text it is at most tableColumns wide; in HTML it is a table.
type table struct {
	caption string
	note    string     // how to read it, below the caption
	head    []column   // none if the table is a list
	rows    [][]string // as many cells as head has; a cell that is missing is empty
	list    []string   // sentences, below the rows
	empty   string     // what stands in place of rows and list if there are none
}

// A column of a table. Numbers are set to the right, everything else to the left.
type column struct {
	name   string
	text   bool // is set to the left
	header bool // says what the row is about
	key    bool // is a name of the program or its user: it can have any characters, and is shortened if it must be
}

// A report is what [Result.WriteTable] and [Result.WriteHTML] show.
type report struct {
	title    string
	subtitle []string
	figures  []figure
	tables   []table
}

// writeText writes the report as plain text.
func (p *report) writeText(w io.Writer) error {
	var b bytes.Buffer
	for _, line := range wrap(notIsolated.Replace(p.title), tableColumns) {
		fmt.Fprintln(&b, line)
	}
	for _, text := range p.subtitle {
		for _, line := range wrap(notIsolated.Replace(text), tableColumns) {
			fmt.Fprintln(&b, line)
		}
	}
	for i := range p.tables {
		b.WriteByte('\n')
		p.tables[i].writeText(&b)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (t *table) writeText(b *bytes.Buffer) {
	fmt.Fprintln(b, t.caption)
	for _, line := range wrap(notIsolated.Replace(t.note), tableColumns-2) {
		fmt.Fprintln(b, "  "+line)
	}
	if len(t.rows) == 0 && len(t.list) == 0 {
		fmt.Fprintln(b, "  "+t.empty)
	}
	if len(t.rows) > 0 {
		t.writeRows(b)
	}
	for _, text := range t.list {
		for i, line := range wrap(text, tableColumns-4) {
			fmt.Fprintln(b, [...]string{"  - ", "    "}[min(i, 1)]+line)
		}
	}
}

func (t *table) writeRows(b *bytes.Buffer) {
	head := make([]string, len(t.head))
	named := false
	for i, c := range t.head {
		head[i] = notIsolated.Replace(c.name)
		named = named || c.name != ""
	}
	rows := t.rows
	if named {
		rows = append([][]string{head}, rows...)
	}
	widths := t.widths(rows)
	for _, row := range rows {
		var line strings.Builder
		for i, width := range widths {
			text := ""
			if i < len(row) {
				text = shorten(row[i], width)
			}
			pad := strings.Repeat(" ", max(width-cells(text), 0))
			if t.head[i].text {
				text += pad
			} else {
				text = pad + text
			}
			line.WriteString("  " + text)
		}
		fmt.Fprintln(b, strings.TrimRight(shorten(line.String(), tableColumns), " "))
	}
}

// widths returns how wide the columns are. Where they would be too wide together, those of keys are narrower.
func (t *table) widths(rows [][]string) []int {
	widths := make([]int, len(t.head))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], cells(text))
		}
	}
	total, keys := 0, 0
	for i, c := range t.head {
		total += widths[i] + 2
		if c.key {
			keys++
		}
	}
	for i, c := range t.head {
		if c.key && total > tableColumns {
			// What is too much, shared by the columns of keys that are left.
			narrower := min((total-tableColumns+keys-1)/keys, max(widths[i]-8, 0))
			widths[i] -= narrower
			total -= narrower
			keys--
		}
	}
	return widths
}
