package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
)

// A page is what the HTML templates of pages get.
type page struct {
	Name     string
	Title    string
	Instance string
	ReadOnly bool
	Nav      []navItem
	Filter   filter
	Time     time.Time
	Stream   template.URL // of its updates; "" if there are none
	Trouble  int
	Back     string // the page that it leads back to
	Data     any
}

// A navItem is an entry of the menu.
type navItem struct{ Name, Title string }

// page returns a page with what all of them have.
func (d *Dashboard) page(name string) *page {
	o := &d.options
	p := &page{Name: name, Instance: o.Instance, ReadOnly: o.Authorize == nil, Time: time.Now().UTC()}
	p.Nav = append(p.Nav, navItem{pageOverview, "Overview"})
	for _, s := range sections {
		if s.title == "" || s.name == "jobs" && o.Jobs == nil || s.name == "stores" && len(o.Stores) == 0 || s.name == "files" && len(o.Watchers) == 0 {
			continue
		}
		p.Nav = append(p.Nav, navItem{s.name, s.title})
	}
	p.Nav = append(p.Nav, navItem{pageCheck, "Check"})
	if i := slices.IndexFunc(p.Nav, func(n navItem) bool { return n.Name == name }); i >= 0 {
		p.Title = p.Nav[i].Title
	}
	return p
}

// link returns a relative link. html/template would escape the separators of parameters that come from a value.
func link(page string, v url.Values) template.URL {
	return template.URL(page + "?" + v.Encode()) //nolint:gosec // Encode has escaped the values
}

// answer writes data in the format f: as JSON, or by the template of that name. p is the page in HTML.
func (d *Dashboard) answer(w http.ResponseWriter, f format, status int, name string, p *page, data any) {
	var b bytes.Buffer
	var err error
	switch f {
	case formatJSON:
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		err = e.Encode(data)
	case formatText: // cells that a tab ends are aligned
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		err = textTemplates.ExecuteTemplate(t, name, data)
		_ = t.Flush()
	default:
		p.Data = data
		err = htmlTemplates.ExecuteTemplate(&b, name, p)
	}
	if err != nil {
		d.options.Logger.Error("dashboard: a page could not be made", "page", name, "error", err)
		status, f = http.StatusInternalServerError, formatText
		b = *bytes.NewBufferString("The page could not be made. The log says why.\n")
	}
	body := bytes.ToValidUTF8(b.Bytes(), replacement) // attributes in HTML have names as they are
	w.Header().Set("Content-Type", contentTypes[f])
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a write that fails is the end of the client
}

// The pages that are not one section.
const (
	pageOverview = "overview"
	pageCheck    = "check"
	pageAction   = "action"
	pageStream   = "stream"
)

// A problem is why something was not answered or not done, with the status of the answer.
type problem struct {
	Status int    `json:"status"`
	Text   string `json:"error"`
}

func (p *problem) Error() string { return p.Text }

func refuse(status int, format string, args ...any) error {
	return &problem{status, fmt.Sprintf(format, args...)}
}

// statusOf returns the status of an answer with an error.
func statusOf(err error) int {
	if p, ok := errors.AsType[*problem](err); ok {
		return p.Status
	}
	if errors.Is(err, weir.ErrInvalidOptions) {
		return http.StatusUnprocessableEntity
	}
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return http.StatusServiceUnavailable
	}
	return http.StatusConflict
}

// fail answers with an error in the format of the page.
func (d *Dashboard) fail(w http.ResponseWriter, f format, err error) {
	status := statusOf(err)
	p := d.page("")
	p.Title = http.StatusText(status)
	d.answer(w, f, status, "failure", p, problem{status, printableLines(err.Error())})
}
