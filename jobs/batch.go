package jobs

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/jobs/internal/window"
)

// A batch is what one transaction has read and will write. Decisions change what was read, and note the changes.
type batch struct {
	now       int64
	fence     int64
	rows      map[int64]*keyRow
	running   map[runID]bool      // runs that go on in the database and, without a time, jobs that it has; nil: not read
	waiters   map[waiterID]waiter // of the jobs of the requests
	keysOfJob map[int64][]int64   // all keys for which a job waited when the batch was read, or waits since

	handOverRoom int // how many more jobs may wait in their workers

	deadRows       []holderID // rows of jobs_holders that no longer count, or that a job with mode Release replaces
	granted        map[holderID]holderRow
	removedWaiters map[waiterID]bool
	savedWaiters   map[waiterID]waiter

	unreadable map[int64]error // errors of rows of jobs_keys that cannot be read; they are not among rows

	unlocked []int64 // keys that were freed without being locked: the next batch looks at their waiters
}

func newBatch(now int64) *batch {
	return &batch{
		now: now, rows: map[int64]*keyRow{}, waiters: map[waiterID]waiter{},
		keysOfJob: map[int64][]int64{}, granted: map[holderID]holderRow{}, unreadable: map[int64]error{}, removedWaiters: map[waiterID]bool{}, savedWaiters: map[waiterID]waiter{},
	}
}

// The fields of rows are columns of statements, in order.

type holderID struct {
	Key   int64
	Owner string
	Job   int64
}

// A holderRow is a row of jobs_holders to be written.
type holderRow struct {
	holderID
	Attempted time.Time
	Mode      int16
	Until     int64 // µs from now; 0: none
	Fence     int64
	Since     int64 // µs; 0: now
}

// Modes of rows in jobs_holders.
const (
	relaxedRow = iota
	strictRow
	keptRow // by mode Acquire
)

// A keyState is what a batch writes in a row of jobs_keys.
type keyState struct {
	ID                     int64
	State                  string
	Hold, Waiting, Expires int64
}

// A keyRow is a row of jobs_keys with its slots or its window. The row of a dynamic window itself has neither.
type keyRow struct {
	id, limiter int64
	ref         Ref
	rules       rules
	state       string
	slots       *slots
	window      *window.Window
	keptOwners  map[string]int64 // owners with a keptRow, and its job
}

func (r *keyRow) hasWindow() bool {
	return r.slots == nil && (r.rules.window.Shares == nil || r.ref.Key != "")
}

func (b *batch) isWaiting(id waiterID) bool {
	_, ok := b.waiters[id]
	return ok
}

// saveWaiter adds a job to the waiters of a key, or changes its row.
func (b *batch) saveWaiter(w waiter) {
	id := w.waiterID
	old, was := b.waiters[id]
	if !was {
		b.rows[id.Key].countWaiters(+1)
		b.keysOfJob[id.Job] = append(b.keysOfJob[id.Job], id.Key)
	}
	if old != w || !was {
		b.waiters[id], b.savedWaiters[id] = w, w
		delete(b.removedWaiters, id)
	}
}

// removeWaiter removes a job from the waiters of a key.
func (b *batch) removeWaiter(id waiterID) {
	delete(b.waiters, id)
	delete(b.savedWaiters, id)
	b.removedWaiters[id] = true
	b.rows[id.Key].countWaiters(-1)
}

// countWaiters counts more waiters of a mutex or a semaphore, whose row may not have been read.
func (r *keyRow) countWaiters(more int64) {
	if r != nil && r.slots != nil {
		r.slots.waiting, r.slots.changed = max(r.slots.waiting+more, 0), true
	}
}

// removeJob removes a job from the waiters of all keys but those of needs, also of limits that the job no longer has.
func (b *batch) removeJob(job int64, needs []need) {
	for _, key := range b.keysOfJob[job] {
		needed := slices.ContainsFunc(needs, func(n need) bool { return n.id == key })
		if id := (waiterID{key, job}); !needed && b.isWaiting(id) {
			b.removeWaiter(id)
		}
	}
}

// removeFinished removes a waiter whose job has ended without coming back.
func (b *batch) removeFinished(id waiterID) {
	if row := b.rows[id.Key]; row != nil && row.slots != nil && !b.removedWaiters[id] {
		row.slots.remove(id.Job)
		b.removeWaiter(id)
	}
}

// setWake notes when a waiter comes back.
func (b *batch) setWake(w waiter, wake int64) {
	row := b.rows[w.Key]
	w.Wake, w.InWorker, w.Version = wake, false, row.rules.version
	b.savedWaiters[w.waiterID] = w
	row.slots.add(w)
}

// toBringBack returns the waiters whose turn is near. It leaves out the jobs that this transaction snoozes: they are still
// running, and River does not find them among the snoozed.
func (b *batch) toBringBack() (next []waiter) {
	for _, row := range b.rows {
		if row.slots != nil {
			next = append(next, row.slots.toBringBack()...)
		}
	}
	return slices.DeleteFunc(next, func(w waiter) bool { return b.isWaiting(w.waiterID) })
}

// storedRows are what load has read, except for the rows that batch has.
type storedRows struct {
	held    map[holderID]int64 // for how long released slots were held, µs; the Job of the ID is 0
	dynamic []dynamicKey
	holders []readHolder
	waiters []waiter // of keys, by key, then by job
	ofJobs  []waiter // of the jobs of the requests
}

// A dynamicKey is the row of a key of a dynamic window.
type dynamicKey struct {
	ID, Limiter int64
	Key, State  string
}

// A readHolder is a row of jobs_holders as it was read, or the number of a key's rows if the mode is countRow.
type readHolder struct {
	holderID
	Mode      int16
	Live      bool
	Acquired  int64 // or the number of rows
	Finalized int64
}

const countRow = -1

// prepare makes slots and windows of what was read.
func (b *batch) prepare(stored storedRows) {
	for _, row := range b.rows {
		if row.slots != nil {
			row.slots.now = b.now
		}
	}
	for _, w := range stored.ofJobs {
		b.waiters[w.waiterID] = w
	}
	b.prepareWindows(stored.dynamic)
	b.prepareHolders(stored.holders)
	for id, us := range stored.held {
		row := b.rows[id.Key]
		if row == nil || row.slots == nil {
			continue
		}
		if _, still := row.slots.owners[id.Owner]; !still { // otherwise other jobs of the owner hold the slot
			row.slots.learnHold(us)
		}
	}
	for _, w := range stored.waiters {
		if row := b.rows[w.Key]; row != nil && row.slots != nil {
			row.slots.waiters = append(row.slots.waiters, w)
		}
	}
	for _, row := range b.rows {
		if row.slots == nil {
			continue
		}
		if n := int64(len(row.slots.waiters)); n < maxWaiters && n != row.slots.waiting { // these are all
			row.slots.waiting, row.slots.changed = n, true
		}
	}
}

func (b *batch) prepareWindows(keys []dynamicKey) {
	ruled := map[int64]rules{} // windows, by limiter
	for _, row := range b.rows {
		if row.slots == nil {
			ruled[row.limiter] = row.rules
		}
	}
	for _, k := range keys {
		if r, ok := ruled[k.Limiter]; ok && k.Key != "" {
			b.rows[k.ID] = &keyRow{id: k.ID, limiter: k.Limiter, ref: Ref{Type: DynamicWindow, Key: k.Key}, rules: r, state: k.State}
		}
	}
	states := map[int64]map[string]string{}
	for _, row := range b.rows {
		if row.hasWindow() {
			if states[row.limiter] == nil {
				states[row.limiter] = map[string]string{}
			}
			states[row.limiter][row.ref.Key] = row.state
		}
	}
	windows, errs := map[int64]map[string]*window.Window{}, map[int64]error{}
	for limiter, s := range states {
		windows[limiter], errs[limiter] = window.Read(s, ruled[limiter].window, b.now)
	}
	for id, row := range b.rows {
		if err := errs[row.limiter]; err != nil {
			b.unreadable[id] = fmt.Errorf("%w: %w", errUnreadable, err)
			delete(b.rows, id)
		} else if row.hasWindow() {
			row.window = windows[row.limiter][row.ref.Key]
		}
	}
}

// prepareHolders sets the owners of slots, and notes rows that no longer count.
func (b *batch) prepareHolders(holders []readHolder) {
	seen, unread := map[holderID]bool{}, map[int64]int64{}
	for _, h := range holders {
		row, id := b.rows[h.Key], h.holderID
		switch {
		case row == nil || row.slots == nil || seen[id]:
			continue
		case h.Mode == countRow:
			unread[h.Key] += h.Acquired
			continue
		}
		seen[id] = true
		unread[h.Key]--
		if !h.Live {
			b.deadRows = append(b.deadRows, id)
			if h.Mode == strictRow && row.slots.waiting > 0 {
				ended := b.now
				if h.Finalized > 0 {
					ended = min(ended, max(h.Finalized, h.Acquired))
				}
				row.slots.learnHold(ended - h.Acquired)
			}
			continue
		}
		if since, ok := row.slots.owners[h.Owner]; !ok || h.Acquired < since {
			row.slots.owners[h.Owner] = h.Acquired
		}
		if h.Mode == keptRow {
			row.keptOwners[h.Owner] = h.Job
		}
	}
	for key, n := range unread {
		b.rows[key].slots.otherOwners = max(n, 0)
	}
}
