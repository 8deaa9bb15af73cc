package dashboard

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/store/backend"
)

// fakeJobs is a Jobs with one semaphore that has three keys.
type fakeJobs struct {
	err     error
	block   chan struct{} // Limiters waits for it
	panics  bool
	mu      sync.Mutex
	holders map[string][]JobHolder // by key
}

func newFakeJobs() *fakeJobs {
	return &fakeJobs{holders: map[string][]JobHolder{"acme": {{Job: 7, Owner: "nightly"}, {Job: 8}}}}
}

var imports = JobRef{Type: "semaphore", Name: "imports"}

func (j *fakeJobs) Limiters(context.Context) ([]JobLimiter, error) {
	if j.block != nil {
		<-j.block
	}
	if j.panics {
		panic("no jobs")
	}
	return []JobLimiter{{JobRef: imports, Options: "max_count 2", Keys: 3, Holders: 2, Waiters: 1}}, j.err
}

func (j *fakeJobs) Keys(_ context.Context, _ JobRef, after string, n int) ([]string, error) {
	all := []string{"acme", "globex", "initech"}
	all = slices.DeleteFunc(all, func(k string) bool { return k <= after })
	return all[:min(n, len(all))], j.err
}

func (j *fakeJobs) Inspect(_ context.Context, r JobRef) (JobState, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return JobState{JobRef: r, Limit: 2, Used: len(j.holders[r.Key]), Holders: slices.Clone(j.holders[r.Key]), Waiters: []JobWaiter{{Job: 9}}}, j.err
}

func (j *fakeJobs) Release(_ context.Context, r JobRef, h JobHolder) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := slices.Index(j.holders[r.Key], h)
	if i < 0 {
		return false, j.err
	}
	j.holders[r.Key] = slices.Delete(j.holders[r.Key], i, i+1)
	return true, j.err
}

// An awayBackend fails each call, whatever its context says, when it is released.
type awayBackend struct {
	backend.Backend
	calls   atomic.Int64
	release chan struct{} // nil: at once
}

func (b *awayBackend) away() error {
	b.calls.Add(1)
	if b.release != nil {
		<-b.release
	}
	return errBoom
}

func (b *awayBackend) Load(context.Context, string) (*backend.Definition, int64, error) {
	return nil, 0, b.away()
}
func (b *awayBackend) Decide(context.Context, []*backend.Batch) error { return b.away() }
func (b *awayBackend) Close() error                                   { return nil }
