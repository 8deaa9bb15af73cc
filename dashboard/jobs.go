package dashboard

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/weir-go/weir/internal/recovered"
)

// Jobs is what the dashboard shows of throttled jobs, and what it can release. jobsdashboard.New makes one of the Throttler
// of package jobs. Its methods must be safe for concurrent use. The contexts of the calls end after 5 s, or in an action
// after 30 s.
type Jobs interface {
	// Limiters returns all limiters of throttled jobs.
	Limiters(ctx context.Context) ([]JobLimiter, error)
	// Keys returns at most n keys of a limiter, in order, beginning after the key after.
	Keys(ctx context.Context, limiter JobRef, after string, n int) ([]string, error)
	// Inspect returns the state of a limiter or, if limiter has a Key, of that key.
	Inspect(ctx context.Context, limiter JobRef) (JobState, error)
	// Release frees the slot that the holder has. It reports whether the holder had one.
	Release(ctx context.Context, limiter JobRef, holder JobHolder) (released bool, err error)
}

// A JobRef names a limiter of throttled jobs, or one of its keys.
type JobRef struct {
	Type string `json:"type"`          // such as "semaphore"
	Name string `json:"name"`          // the limiter's name
	Key  string `json:"key,omitempty"` // empty: the limiter as a whole, or it has no keys
}

// A JobLimiter is a limiter of throttled jobs in the list of all.
type JobLimiter struct {
	JobRef
	Options string `json:"options,omitempty"` // its limits in a form for people, such as "max_count 3"
	Keys    int    `json:"keys"`              // how many keys are stored
	Holders int    `json:"holders"`           // how many slots are held, of all keys
	Waiters int    `json:"waiters"`           // how many throttled jobs come back, of all keys
}

// A JobState is the state of a limiter of throttled jobs, or of one of its keys.
type JobState struct {
	JobRef
	Limit    int         `json:"limit"`         // the number of slots; 0: not known
	Used     int         `json:"used"`          // how many slots are taken
	Reserved int         `json:"reserved"`      // how many places are reserved for jobs that come back
	Waiting  int         `json:"waiting"`       // how many throttled jobs come back
	Next     time.Time   `json:"next,omitzero"` // an estimate of when a job that comes now would start; zero: not known
	Holders  []JobHolder `json:"holders"`       // which jobs have slots; it need not have all of them
	Waiters  []JobWaiter `json:"waiters"`       // which jobs come back; it need not have all of them
}

// A JobHolder holds a slot.
type JobHolder struct {
	Job   int64     `json:"job"`             // the number of the job
	Owner string    `json:"owner,omitempty"` // the name of the owner; empty if it is the job
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"` // when the slot is freed by itself; zero: it is not
}

// A JobWaiter is a throttled job that comes back.
type JobWaiter struct {
	Job   int64     `json:"job"`
	Since time.Time `json:"since,omitzero"` // when it was first throttled
	Wake  time.Time `json:"wake,omitzero"`  // when it comes back
}

const (
	// keysPerPage is how many keys a page of a limiter of jobs lists.
	keysPerPage = 100
	// maxKeysSearched bounds the search for the key that has a hash.
	maxKeysSearched = 10000
)

// A jobPage is the page of one limiter of jobs.
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

// address returns the address of a page about the limiter, with further parameters: names and values. Those without a value
// are left out.
func (j *jobPage) address(page string, more ...string) template.URL {
	v := url.Values{"type": {j.Type}, "name": {j.Name}}
	for i := 0; i < len(more); i += 2 {
		if more[i+1] != "" {
			v.Set(more[i], more[i+1])
		}
	}
	return link(page, v)
}

// ReleasePage returns the page that asks whether to release a slot.
func (j *jobPage) ReleasePage(h JobHolder) template.URL {
	return j.address(pageAction, "do", ActionRelease, "job", strconv.FormatInt(h.Job, 10), "key", j.KeyText, "owner", h.Owner)
}

// serveJob serves the page of one limiter of jobs or one of its keys.
func (d *Dashboard) serveJob(w http.ResponseWriter, r *http.Request, f format) {
	if d.options.Jobs == nil {
		d.fail(w, f, errNoJobs)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	v := r.URL.Query()
	j := &jobPage{Time: time.Now().UTC(), Type: v.Get("type"), Name: v.Get("name")}
	status := http.StatusOK
	if err := d.fillJob(ctx, j, v.Get("key"), v.Get("after")); err != nil {
		wrong := jobsError(err)
		j.Error, status = wrong.Error(), statusOf(wrong)
	}
	p := d.page("jobs")
	p.Title, p.Time = j.Name, j.Time
	d.answer(w, f, status, "job", p, j)
}

var (
	errNoJobs = refuse(http.StatusNotFound, "This program has no throttled jobs.")
	errNoKey  = errors.New("there is no such key")
)

// jobsError returns err, which has come from Jobs, with the status of the answer.
func jobsError(err error) error {
	if errors.Is(err, errNoKey) {
		return refuse(http.StatusNotFound, "%v", err)
	}
	return refuse(http.StatusBadGateway, "%s", errorText(err))
}

// readRelease reads which slot is to be freed.
func readRelease(ctx context.Context, d *Dashboard, q *request) error {
	if d.options.Jobs == nil {
		return errNoJobs
	}
	q.job = JobRef{Type: q.form.Get("type"), Name: q.form.Get("name")}
	key, err := d.jobKey(ctx, q.job, q.form.Get("key"))
	if err != nil {
		return jobsError(err)
	}
	q.job.Key = key
	q.Target = targetOf(q.job)
	q.shown = targetOf(JobRef{q.job.Type, q.job.Name, d.options.keyText(key)})
	q.holder.Owner = q.form.Get("owner")
	if q.holder.Job, err = strconv.ParseInt(q.form.Get("job"), 10, 64); err != nil {
		return refuse(http.StatusBadRequest, "job must be the number of a job, got %q", shorten(q.form.Get("job"), 30))
	}
	return nil
}

// targetOf returns the target of an action: type/name, or type/name/key.
func targetOf(r JobRef) string {
	return r.Type + "/" + r.Name + prefixed("/", r.Key)
}

func confirmRelease(_ *Dashboard, q *request) (*confirmation, error) {
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

func doRelease(ctx context.Context, d *Dashboard, q *request) (*outcome, error) {
	var released bool
	err := recovered.Error(func() (err error) {
		released, err = d.options.Jobs.Release(ctx, q.job, q.holder)
		return err
	})
	switch {
	case err != nil:
		return nil, jobsError(err)
	case !released:
		return nil, refuse(http.StatusConflict, "job %d has no slot in %s any more", q.holder.Job, q.shown)
	}
	return &outcome{Text: fmt.Sprintf("The slot of job %d in %s is free.", q.holder.Job, q.shown)}, nil
}

// fillJob asks for the state and the keys.
func (d *Dashboard) fillJob(ctx context.Context, j *jobPage, key, after string) error {
	ref := JobRef{Type: j.Type, Name: j.Name}
	plain, err := d.jobKey(ctx, ref, key)
	if err != nil {
		return err
	}
	ref.Key = plain
	j.KeyText = d.options.keyText(plain)
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
		if k != "" {
			j.Keys = append(j.Keys, jobKey{d.options.keyText(k), j.address("jobs", "key", d.options.keyText(k))})
		}
	}
	if len(keys) >= keysPerPage {
		j.More = j.address("jobs", "after", d.options.keyText(keys[len(keys)-1]))
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
			if d.options.KeyHash.Hash(k) == text {
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
