package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/weir-go/weir/internal/ask"
	"github.com/weir-go/weir/internal/recovered"
)

const (
	// keysPerPage is how many keys a page of a limiter of jobs lists.
	keysPerPage = 100
	// maxKeysSearched bounds the search for the key that has a hash.
	maxKeysSearched = 10000
)

// A jobPage is what the page of one limiter of jobs gets, and its JSON.
type jobPage struct {
	Time    time.Time    `json:"time"`
	Type    string       `json:"type"`
	Name    string       `json:"name"`
	KeyText string       `json:"key,omitempty"`
	State   *JobState    `json:"state,omitempty"`
	Keys    []jobKey     `json:"keys,omitempty"`
	Error   string       `json:"error,omitempty"`
	More    template.URL `json:"-"` // the page with further keys
}

// A jobKey is a key in a list.
type jobKey struct {
	Text string       `json:"key"`
	Page template.URL `json:"-"` // its page
}

// ReleasePage returns the page that asks whether to release a slot.
func (j *jobPage) ReleasePage(h JobHolder) template.URL {
	v := url.Values{"do": {ActionRelease}, "type": {j.Type}, "name": {j.Name}, "job": {strconv.FormatInt(h.Job, 10)}}
	if j.KeyText != "" {
		v.Set("key", j.KeyText)
	}
	if h.Owner != "" {
		v.Set("owner", h.Owner)
	}
	return link(pageAction, v)
}

// link returns a relative link. html/template would escape the separators of parameters that come from a value.
func link(page string, v url.Values) template.URL {
	return template.URL(page + "?" + v.Encode()) //nolint:gosec // Encode has escaped the values
}

// serveJob serves the page of one limiter of jobs or one of its keys.
func (d *Dashboard) serveJob(w http.ResponseWriter, r *http.Request, f format) {
	if d.options.Jobs == nil {
		d.fail(w, f, http.StatusNotFound, "This program has no throttled jobs.")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	v := r.URL.Query()
	j := &jobPage{Time: time.Now().UTC(), Type: v.Get("type"), Name: v.Get("name")}
	status := http.StatusOK
	if err := d.fillJob(ctx, j, v.Get("key"), v.Get("after")); err != nil {
		wrong := jobsError(err)
		j.Error, status = wrong.text, wrong.status
	}
	d.answer(w, f, status, j, j.writeText, func() (string, any) {
		p := d.page("jobs", query{Sort: sorts[0]})
		p.Title, p.Data, p.Time = j.Name, j, j.Time
		return "job", p
	})
}

var errNoKey = errors.New("there is no such key")

// jobsError returns err, which has come from Jobs, with the status of the answer.
func jobsError(err error) *actionError {
	status := http.StatusBadGateway
	if errors.Is(err, errNoKey) {
		status = http.StatusNotFound
	}
	return &actionError{status, errorText(err)}
}

// fillJob asks for the state and the keys.
func (d *Dashboard) fillJob(ctx context.Context, j *jobPage, key, after string) error {
	ref := JobRef{Type: j.Type, Name: j.Name}
	plain, err := d.jobKey(ctx, ref, key)
	if err != nil {
		return err
	}
	ref.Key = plain
	j.KeyText = d.keyText(plain)
	var state JobState
	if err := recovered.Error(func() (err error) { state, err = d.options.Jobs.Inspect(ctx, ref); return err }); err != nil {
		return err
	}
	state.Key = j.KeyText
	j.State = &state
	if plain != "" {
		return nil
	}
	if after, err = d.jobKey(ctx, ref, after); err != nil {
		return err
	}
	keys, err := d.jobKeys(ctx, ref, after, keysPerPage)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if k == "" {
			continue
		}
		v := url.Values{"type": {j.Type}, "name": {j.Name}, "key": {d.keyText(k)}}
		j.Keys = append(j.Keys, jobKey{Text: d.keyText(k), Page: link("jobs", v)})
	}
	if len(keys) >= keysPerPage {
		j.More = link("jobs", url.Values{"type": {j.Type}, "name": {j.Name}, "after": {d.keyText(keys[len(keys)-1])}})
	}
	return nil
}

func (d *Dashboard) jobKeys(ctx context.Context, ref JobRef, after string, n int) (keys []string, err error) {
	err = recovered.Error(func() (err error) {
		keys, err = d.options.Jobs.Keys(ctx, JobRef{Type: ref.Type, Name: ref.Name}, after, n)
		return err
	})
	return keys, err
}

// jobKey returns the key whose text on the pages is text. Without [Options.ShowKeys] it looks for the key with the hash.
func (d *Dashboard) jobKey(ctx context.Context, ref JobRef, text string) (string, error) {
	if d.options.ShowKeys || text == "" {
		return text, nil
	}
	after := ""
	for range maxKeysSearched / keysPerPage {
		keys, err := d.jobKeys(ctx, ref, after, keysPerPage)
		if err != nil {
			return "", err
		}
		for _, k := range keys {
			if d.hash(k) == text {
				return k, nil
			}
		}
		if len(keys) < keysPerPage {
			break
		}
		after = keys[len(keys)-1]
	}
	return "", fmt.Errorf("%w: %s", errNoKey, shorten(text, 60))
}

func (j *jobPage) writeText(b *bytes.Buffer) {
	fmt.Fprintf(b, "%s %s %s\n", printable(j.Type), printable(j.Name), printable(j.KeyText))
	if j.Error != "" {
		fmt.Fprintln(b, printable(j.Error))
		return
	}
	s := j.State
	fmt.Fprintf(b, "slots taken %d of %d, reserved %d, waiting %d", s.Used, s.Limit, s.Reserved, s.Waiting)
	if !s.Next.IsZero() {
		fmt.Fprintf(b, ", next free slot %s", s.Next.UTC().Format(time.RFC3339))
	}
	fmt.Fprintln(b)
	t := newTable(b, "holders", "JOB", "OWNER", "SINCE", "UNTIL")
	for _, h := range s.Holders {
		t.row(fmt.Sprint(h.Job), h.Owner, timeText(h.Since), timeText(h.Until))
	}
	t.end()
	t = newTable(b, "waiters", "JOB", "SINCE", "COMES BACK")
	for _, h := range s.Waiters {
		t.row(fmt.Sprint(h.Job), timeText(h.Since), timeText(h.Wake))
	}
	t.end()
	if len(j.Keys) > 0 {
		t = newTable(b, "keys")
		for _, k := range j.Keys {
			t.row(k.Text)
		}
		t.end()
	}
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// A jobsAnswer is the answer of [Jobs.Limiters].
type jobsAnswer struct {
	limiters []JobLimiter
	err      error
}

// askJobs asks for the limiters of jobs, or returns nil if there are none.
func (s *sampler) askJobs() *ask.Question[jobsAnswer] {
	jobs := s.dashboard.options.Jobs
	if jobs == nil {
		return nil
	}
	return s.jobs.Ask("dashboard: Limiters of Jobs", func() (a jobsAnswer) {
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		defer cancel()
		a.err = recovered.Error(func() (err error) {
			a.limiters, err = jobs.Limiters(ctx)
			return err
		})
		return a
	})
}

func (s *sampler) jobStates(ctx context.Context, q *ask.Question[jobsAnswer], snap *snapshot) {
	if q == nil {
		return
	}
	snap.Jobs = []jobState{}
	answer, ok := q.Wait(ctx)
	switch {
	case !ok:
		snap.JobsError = "the list has not come in time"
	case answer.err != nil:
		snap.JobsError = errorText(answer.err)
	}
	for _, l := range answer.limiters {
		j := jobState{JobLimiter: l}
		j.Key = s.dashboard.keyText(j.Key)
		if l.Waiters > 0 {
			j.Level = levelNotice
		}
		snap.Jobs = append(snap.Jobs, j)
	}
}
