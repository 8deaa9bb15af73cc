package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/reload"
)

const (
	// actionTimeout bounds an action. Reading a file and building its pipelines can take a while.
	actionTimeout = 30 * time.Second
	// maxForm bounds the body of an action, in bytes.
	maxForm = 64 << 10
)

var actions = map[string]action{
	ActionReload: {"files", nil, confirmReload, doReload},
	ActionIsolate: {"circuits", nil, confirmCircuit("Isolate the circuit", "every call is rejected until it is closed by hand",
		"A reload of the configuration leaves it isolated. A restart of this process does not. Other instances are not affected."), doIsolate},
	ActionClose: {"circuits", nil, confirmCircuit("Close the circuit", "calls go through again, and its counts begin at 0",
		"If what it calls still fails, it opens again. Other instances are not affected."), doClose},
	ActionOverride:    {"limiters", nil, confirmOverride, doOverride},
	ActionEndOverride: {"limiters", nil, confirmEndOverride, doEndOverride},
	ActionRelease:     {"jobs", readRelease, confirmRelease, doRelease},
}

// serveConfirmation asks the user whether an action is to be done.
func (d *Dashboard) serveConfirmation(w http.ResponseWriter, r *http.Request, f format) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	q, err := d.authorize(ctx, r, r.URL.Query())
	var c *confirmation
	if err == nil {
		c, err = q.action.confirm(d, q)
	}
	if err == nil && f != formatHTML {
		w.Header().Set("Allow", http.MethodPost)
		err = refuse(http.StatusMethodNotAllowed, "Send it by POST to do it: %s", c.Text)
	}
	if err != nil {
		d.fail(w, f, err)
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
	p := d.page(pageAction)
	p.Title, p.Back = c.Button, q.action.page
	d.answer(w, formatHTML, status, "confirm", p, c)
}

// serveAction does an action.
func (d *Dashboard) serveAction(w http.ResponseWriter, r *http.Request, f format) {
	// The server's WriteTimeout began when the request was read; without a way to change it the answer can be lost, but
	// the action is done.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(actionTimeout + writeTimeout))
	if err := protection.Check(r); err != nil {
		d.fail(w, f, refuse(http.StatusForbidden, "This does not come from a page of the dashboard: %v.", err))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		status := http.StatusBadRequest
		if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
			status = http.StatusRequestEntityTooLarge
		}
		d.fail(w, f, refuse(status, "The form cannot be read: %v.", err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actionTimeout)
	defer cancel()
	q, err := d.authorize(ctx, r, r.PostForm)
	if err != nil {
		d.fail(w, f, err)
		return
	}
	done, err := q.action.do(ctx, d, q)
	d.record(ctx, q, done, err)
	d.outdate()
	if errors.Is(err, weir.ErrInvalidOptions) && f == formatHTML {
		if c, confirmErr := q.action.confirm(d, q); confirmErr == nil { // the form again, with what was sent
			c.Error = err.Error()
			d.ask(w, statusOf(err), q, c)
			return
		}
	}
	if err != nil {
		d.fail(w, f, refuse(statusOf(err), "Not done: %v", err))
		return
	}
	done.Action, done.Target, done.User = q.Name, q.shown, q.who
	p := d.page(pageAction)
	p.Title, p.Back = "Done", q.action.page
	d.answer(w, f, http.StatusOK, "done", p, done)
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
	known := false
	if q.action, known = actions[q.Name]; !known {
		return nil, refuse(http.StatusBadRequest, "There is no action %q.", printable(shorten(q.Name, 40)))
	}
	if q.action.read != nil {
		if err := q.action.read(ctx, d, q); err != nil {
			return nil, err
		}
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

// record writes the event and the log line of an action.
func (d *Dashboard) record(ctx context.Context, q *request, done *outcome, err error) {
	log := d.options.Logger.With("action", q.Name, "target", q.shown, "user", q.who)
	severity, text := pipeline.SeverityWarning, ""
	if err != nil {
		severity, text = pipeline.SeverityError, "not done: "+errorText(err)
		log.ErrorContext(ctx, "dashboard: action failed", "error", errorText(err))
	} else {
		text = done.Text
		log.InfoContext(ctx, "dashboard: action done", "result", text)
	}
	d.options.Events.add("Dashboard "+q.Name, shorten(q.shown, maxFieldText), severity, eventRow{text: shorten(text, maxText), user: q.who})
}

func confirmReload(d *Dashboard, q *request) (*confirmation, error) {
	_, err := d.watcher(q.Target)
	return &confirmation{Text: "Read " + q.Target + " now, and put it in force if it has changed and is right.", Button: "Read the file"}, err
}

func doReload(ctx context.Context, d *Dashboard, q *request) (*outcome, error) {
	w, err := d.watcher(q.Target)
	if err != nil {
		return nil, err
	}
	if err := w.Reload(ctx); err != nil {
		return nil, refuse(http.StatusUnprocessableEntity, "%s", shorten(err.Error(), 4*maxText))
	}
	return &outcome{Text: q.Target + " was read and is in force."}, nil
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
