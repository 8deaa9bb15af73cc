package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

const (
	// actionTimeout bounds an action. Reading a file and building its pipelines can take a while.
	actionTimeout = 30 * time.Second
	// maxForm bounds the body of an action, in bytes.
	maxForm = 64 << 10
)

// A request is an action that a user asks for, with all that it needs.
type request struct {
	Action
	form   url.Values
	job    JobRef // of a release
	holder JobHolder
	shown  string // the target as the log and the events show it: with the hash of a key
	who    string
}

// An actionError is why an action was not done, with the status of the answer.
type actionError struct {
	status int
	text   string
}

func (e *actionError) Error() string { return e.text }

func refuse(status int, format string, args ...any) error {
	return &actionError{status, fmt.Sprintf(format, args...)}
}

// statusOf returns the status for an error of an action.
func statusOf(err error) int {
	if e, ok := errors.AsType[*actionError](err); ok {
		return e.status
	}
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return http.StatusServiceUnavailable
	}
	return http.StatusConflict
}

// A confirmation is what the page that asks before an action gets.
type confirmation struct {
	Text   string
	Notes  []string
	Error  string
	Legend string
	Fields []formField
	Hidden []field
	Button string
}

// A formField is an input of a form.
type formField struct {
	Name, Label, Value, Was string
	Choices                 []string
	Required, Wide          bool
}

// serveConfirmation asks the user whether an action is to be done.
func (d *Dashboard) serveConfirmation(w http.ResponseWriter, r *http.Request, f format) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	q, err := d.authorize(ctx, r, r.URL.Query())
	if err != nil {
		d.fail(w, f, statusOf(err), err.Error())
		return
	}
	c, err := d.confirmation(q)
	if err != nil {
		d.fail(w, f, statusOf(err), err.Error())
		return
	}
	if f != formatHTML {
		w.Header().Set("Allow", http.MethodPost)
		d.fail(w, f, http.StatusMethodNotAllowed, "Send it by POST to do it: "+c.Text)
		return
	}
	d.ask(w, http.StatusOK, q, c)
}

// ask renders the page that asks.
func (d *Dashboard) ask(w http.ResponseWriter, status int, q *request, c *confirmation) {
	for _, name := range []string{"do", "target", "type", "name", "key", "job", "owner"} {
		if value := q.form.Get(name); value != "" {
			c.Hidden = append(c.Hidden, field{name, value})
		}
	}
	p := d.page(pageAction, query{Sort: sorts[0]})
	p.Title, p.Data, p.Back = c.Button, c, pageOf(q.Name)
	d.render(w, status, "confirm", p)
}

// pageOf returns the page that an action belongs to.
func pageOf(action string) string {
	switch action {
	case ActionReload:
		return "files"
	case ActionIsolate, ActionClose:
		return "circuits"
	case ActionRelease:
		return "jobs"
	default:
		return "limiters"
	}
}

// serveAction does an action.
func (d *Dashboard) serveAction(w http.ResponseWriter, r *http.Request, f format) {
	// The server's WriteTimeout began when the request was read; without a way to change it the answer can be lost, but
	// the action is done.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(actionTimeout + writeTimeout))
	if err := protection.Check(r); err != nil {
		d.fail(w, f, http.StatusForbidden, "This does not come from a page of the dashboard: "+err.Error()+".")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		status := http.StatusBadRequest
		if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
			status = http.StatusRequestEntityTooLarge
		}
		d.fail(w, f, status, "The form cannot be read: "+err.Error()+".")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actionTimeout)
	defer cancel()
	q, err := d.authorize(ctx, r, r.PostForm)
	if err != nil {
		d.fail(w, f, statusOf(err), err.Error())
		return
	}
	result, err := d.do(ctx, q)
	d.record(ctx, q, result, err)
	d.outdate()
	switch wrong, isForm := errors.AsType[*formError](err); {
	case isForm && f == formatHTML:
		wrong.page.Error = wrong.Error()
		d.ask(w, http.StatusUnprocessableEntity, q, wrong.page)
	case isForm:
		d.fail(w, f, http.StatusUnprocessableEntity, err.Error())
	case err != nil:
		d.fail(w, f, statusOf(err), "Not done: "+err.Error())
	case f == formatJSON:
		writeJSON(w, http.StatusOK, map[string]any{"action": q.Name, "target": q.shown, "user": q.who, "text": result.text, "yaml": result.yaml})
	case f == formatText:
		write(w, f, http.StatusOK, []byte(printable(result.text)+"\n"+result.yaml))
	default:
		p := d.page(pageAction, query{Sort: sorts[0]})
		p.Title, p.Text, p.Code, p.Back = "Done", result.text, result.yaml, pageOf(q.Name)
		d.render(w, http.StatusOK, "message", p)
	}
}

// protection refuses forms of other sites.
var protection = http.NewCrossOriginProtection()

// authorize reads the action and asks [Options.Authorize].
func (d *Dashboard) authorize(ctx context.Context, r *http.Request, form url.Values) (*request, error) {
	if d.options.Authorize == nil {
		return nil, refuse(http.StatusForbidden, "This dashboard is read-only: the program has not set Options.Authorize. For weir gateway, set dashboard: {token_file: FILE}.")
	}
	q := &request{Action: Action{Name: form.Get("do"), Target: form.Get("target")}, form: form}
	q.shown = q.Target
	switch q.Name {
	case ActionReload, ActionIsolate, ActionClose, ActionOverride, ActionEndOverride:
	case ActionRelease:
		if err := d.readRelease(ctx, q); err != nil {
			return nil, err
		}
	default:
		return nil, refuse(http.StatusBadRequest, "There is no action %q.", printable(shorten(q.Name, 40)))
	}
	err := recovered.Error(func() (err error) {
		q.who, err = d.options.Authorize(r, q.Action)
		return err
	})
	if err != nil {
		d.options.Logger.WarnContext(ctx, "dashboard: action refused", "action", q.Name, "target", q.shown, "error", errorText(err), "remote", r.RemoteAddr)
		return nil, refuse(http.StatusForbidden, "You may not do this: %s", errorText(err))
	}
	if q.who = shorten(q.who, 200); strings.TrimSpace(q.who) == "" {
		q.who = "unknown"
	}
	return q, nil
}

// readRelease reads which slot is to be freed.
func (d *Dashboard) readRelease(ctx context.Context, q *request) error {
	if d.options.Jobs == nil {
		return refuse(http.StatusNotFound, "This program has no throttled jobs.")
	}
	q.job = JobRef{Type: q.form.Get("type"), Name: q.form.Get("name")}
	key, err := d.jobKey(ctx, q.job, q.form.Get("key"))
	if err != nil {
		return jobsError(err)
	}
	q.job.Key = key
	q.Target = q.job.String()
	q.shown = JobRef{q.job.Type, q.job.Name, d.keyText(key)}.String()
	q.holder.Owner = q.form.Get("owner")
	if q.holder.Job, err = strconv.ParseInt(q.form.Get("job"), 10, 64); err != nil {
		return refuse(http.StatusBadRequest, "job must be the number of a job, got %q", shorten(q.form.Get("job"), 30))
	}
	return nil
}

// A result is what an action has done.
type result struct {
	text string
	yaml string // what can be put into the file
}

// confirmation returns what the user is asked.
func (d *Dashboard) confirmation(q *request) (*confirmation, error) {
	switch q.Name {
	case ActionReload:
		if _, err := d.watcher(q.Target); err != nil {
			return nil, err
		}
		return &confirmation{Text: "Read " + q.Target + " now, and put it in force if it has changed and is right.", Button: "Read the file"}, nil
	case ActionIsolate, ActionClose:
		return d.confirmCircuit(q)
	case ActionOverride:
		return d.confirmOverride(q)
	case ActionEndOverride:
		return d.confirmEndOverride(q)
	default:
		owner := fmt.Sprintf("job %d", q.holder.Job)
		if q.holder.Owner != "" {
			owner = fmt.Sprintf("%q, taken by %s", q.holder.Owner, owner)
		}
		return &confirmation{
			Text:   fmt.Sprintf("Free the slot of %s in %s.", owner, q.shown),
			Notes:  []string{"If the job still runs, another one can run beside it from then on. Make sure that it does not."},
			Button: "Release the slot",
		}, nil
	}
}

// do does an action.
func (d *Dashboard) do(ctx context.Context, q *request) (result, error) {
	switch q.Name {
	case ActionReload:
		w, err := d.watcher(q.Target)
		if err != nil {
			return result{}, err
		}
		if err := w.Reload(ctx); err != nil {
			return result{}, refuse(http.StatusUnprocessableEntity, "%s", shorten(err.Error(), 4*maxText))
		}
		return result{text: q.Target + " was read and is in force."}, nil
	case ActionIsolate, ActionClose:
		return d.doCircuit(q)
	case ActionOverride:
		return d.doOverride(ctx, q)
	case ActionEndOverride:
		if err := d.options.Registry.EndOverride(ctx, q.Target, q.who); err != nil {
			return result{}, err
		}
		return result{text: "The limiter " + q.Target + " has its configured limits again."}, nil
	default:
		var released bool
		err := recovered.Error(func() (err error) {
			released, err = d.options.Jobs.Release(ctx, q.job, q.holder)
			return err
		})
		switch {
		case err != nil:
			return result{}, jobsError(err)
		case !released:
			return result{}, refuse(http.StatusConflict, "job %d has no slot in %s any more", q.holder.Job, q.shown)
		}
		return result{text: fmt.Sprintf("The slot of job %d in %s is free.", q.holder.Job, q.shown)}, nil
	}
}

// record writes the event and the log line of an action.
func (d *Dashboard) record(ctx context.Context, q *request, res result, err error) {
	severity, text := pipeline.SeverityWarning, res.text
	switch {
	case err != nil:
		severity, text = pipeline.SeverityError, "not done: "+errorText(err)
	case q.Name == ActionReload:
		severity = pipeline.SeverityInformation
	}
	d.event("Dashboard "+q.Name, shorten(q.shown, maxFieldText), severity, shorten(text, maxText), q.who)
	if err != nil {
		d.options.Logger.ErrorContext(ctx, "dashboard: action failed", "action", q.Name, "target", q.shown, "user", q.who, "error", errorText(err))
		return
	}
	d.options.Logger.InfoContext(ctx, "dashboard: action done", "action", q.Name, "target", q.shown, "user", q.who, "result", text)
}

// watcher returns the watcher of a file.
func (d *Dashboard) watcher(path string) (*reload.Watcher, error) {
	for _, w := range d.options.Watchers {
		if w.Status().Path == path {
			return w, nil
		}
	}
	return nil, refuse(http.StatusNotFound, "There is no configuration file %q here.", printable(shorten(path, 200)))
}

// A namedCircuit is a circuit with its source.
type namedCircuit struct {
	source pipeline.Source
	*circuitbreaker.Strategy
}

// findCircuits returns the circuits of a source, and the sources of all circuits that have the same Controls.
func (d *Dashboard) findCircuits(target string) (found []namedCircuit, together []string) {
	var all []namedCircuit
	for _, info := range d.options.Registry.Pipelines() {
		for source, c := range circuitsOf(info.Pipeline) {
			all = append(all, namedCircuit{source, c})
			if source.String() == target {
				found = append(found, namedCircuit{source, c})
			}
		}
	}
	for _, c := range all {
		for _, f := range found {
			if c.Control() == f.Control() && c.source != f.source {
				together = append(together, c.source.String())
				break
			}
		}
	}
	return found, together
}

func (d *Dashboard) confirmCircuit(q *request) (*confirmation, error) {
	found, together := d.findCircuits(q.Target)
	if len(found) == 0 {
		return nil, refuse(http.StatusNotFound, "There is no circuit %q.", printable(shorten(q.Target, 200)))
	}
	c := &confirmation{
		Text:   fmt.Sprintf("Isolate the circuit %s: every call is rejected until it is closed by hand.", q.Target),
		Notes:  []string{"A reload of the configuration leaves it isolated. A restart of this process does not. Other instances are not affected."},
		Button: "Isolate the circuit",
	}
	if q.Name == ActionClose {
		c.Text = fmt.Sprintf("Close the circuit %s, which is %s: calls go through again, and its counts begin at 0.", q.Target, strings.ReplaceAll(found[0].CircuitState(), "_", " "))
		c.Notes = []string{"If what it calls still fails, it opens again. Other instances are not affected."}
		c.Button = "Close the circuit"
	}
	if len(together) > 0 {
		c.Notes = append(c.Notes, "The same Control has these circuits, too: "+strings.Join(together, ", ")+".")
	}
	return c, nil
}

func (d *Dashboard) doCircuit(q *request) (result, error) {
	found, _ := d.findCircuits(q.Target)
	if len(found) == 0 {
		return result{}, refuse(http.StatusNotFound, "There is no circuit %q.", printable(shorten(q.Target, 200)))
	}
	for _, c := range found {
		if q.Name == ActionClose {
			d.options.Events.endIsolation(c.source)
			c.Control().Reset()
			continue
		}
		c.Control().Isolate()
		d.options.Events.isolate(c.source, isolation{by: q.who, since: time.Now(), control: c.Control()})
	}
	if q.Name == ActionClose {
		return result{text: "The circuit " + q.Target + " is closed."}, nil
	}
	return result{text: "The circuit " + q.Target + " is isolated."}, nil
}

// limiterInfo returns what the registry says about a limiter.
func (d *Dashboard) limiterInfo(name string) (registry.LimiterInfo, error) {
	for each, info := range d.options.Registry.Limiters() {
		if each == name {
			return info, nil
		}
	}
	return registry.LimiterInfo{}, refuse(http.StatusNotFound, "There is no limiter %q.", printable(shorten(name, 200)))
}
