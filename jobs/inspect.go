package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/jobs/internal/window"
)

// A LimiterInfo is one limiter in a list.
type LimiterInfo struct {
	Ref
	Options json.RawMessage `json:"options"` // as they were set; durations are in ns
	Keys    int             `json:"keys"`    // the number of stored keys; at most 1 for a limiter without keys
	Holders int             `json:"holders"` // the number of jobs and named owners that hold slots, of all keys
	Waiters int             `json:"waiters"` // the number of throttled jobs that come back, of all keys
}

// A KeyInfo is the state of a limiter, or of one of its keys. For a dynamic window without a key, it has the sums over all
// keys: Limit is the Capacity, 0 if there is none, and Next is zero.
type KeyInfo struct {
	Ref
	Limit    int           `json:"limit"`     // the number of slots, or the present limit of the window
	Used     int           `json:"used"`      // the number of owners that hold slots, or of executions in the present window
	Reserved int           `json:"reserved"`  // windows: the number of places that are reserved for jobs that come back
	Next     time.Time     `json:"next"`      // an estimate of when a job that comes now would start
	Now      time.Time     `json:"now"`       // the time by the database's clock
	Waiting  int           `json:"waiting"`   // the number of throttled jobs that come back
	Holders  []Holder      `json:"holders"`   // at most 1000
	Waiters  []Waiter      `json:"waiters"`   // by job; at most 1000
	MeanHold time.Duration `json:"mean_hold"` // mutexes and semaphores: the mean time for which a slot is held, in JSON in ns; 0: not known
}

// A Holder holds a slot.
type Holder struct {
	Job   int64     `json:"job"`             // the job that took the slot
	Owner string    `json:"owner,omitempty"` // the name of the owner; empty if it is the job
	Mode  string    `json:"mode"`            // relaxed, strict or kept
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"` // the end of the lease or the deadline, if there is one
	Fence int64     `json:"fence"`
}

// A Waiter is a throttled job that comes back.
type Waiter struct {
	Job      int64     `json:"job"`
	Since    time.Time `json:"since"`     // when it was first throttled
	Wake     time.Time `json:"wake"`      // when it comes back
	Reserved bool      `json:"reserved"`  // a place in a window is reserved for it
	InWorker bool      `json:"in_worker"` // it waits in its worker
}

// Limiters lists all limiters, including mutexes that have been used.
func (t *Throttler) Limiters(ctx context.Context) ([]LimiterInfo, error) {
	infos := []LimiterInfo{}
	var i LimiterInfo
	add := func() { infos = append(infos, i) }
	err := query(ctx, t.pool, eachRow(add, &i.Type, &i.Name, &i.Options, &i.Keys, &i.Holders, &i.Waiters), t.sql.ListLimiters)
	if err != nil {
		return nil, fmt.Errorf("jobs: Limiters: %w", err)
	}
	return infos, nil
}

// Keys lists at most n keys of a limiter, in order, beginning after the given key. The empty key of a limiter without keys is
// not listed. Unused keys are removed: those of windows when nothing in them counts any more, those of mutexes and semaphores
// after a day.
func (t *Throttler) Keys(ctx context.Context, limiter Ref, after string, n int) ([]string, error) {
	var key string
	keys := []string{}
	add := func() { keys = append(keys, key) }
	if err := query(ctx, t.pool, eachRow(add, &key), t.sql.ListKeys, string(limiter.Type), limiter.Name, after, n); err != nil {
		return nil, fmt.Errorf("jobs: Keys of %v: %w", limiter, err)
	}
	return keys, nil
}

// Inspect returns the state of a limiter, or of the key in limiter.Key. It locks nothing, so a job that starts at the
// same time may or may not be in it. If the limiter does not exist, the error is an [ErrUnknownLimiter]. A key that
// does not exist, and a mutex that no job has named, have the state of an unused key.
func (t *Throttler) Inspect(ctx context.Context, limiter Ref) (KeyInfo, error) {
	info := KeyInfo{Ref: limiter}
	err := pgx.BeginTxFunc(ctx, t.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly, IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		return t.inspect(ctx, tx, &info)
	})
	if err != nil {
		return KeyInfo{}, fmt.Errorf("jobs: Inspect %v: %w", limiter, err)
	}
	return info, nil
}

func (t *Throttler) inspect(ctx context.Context, tx pgx.Tx, info *KeyInfo) error {
	row, err := t.readKey(ctx, tx, info)
	if err != nil {
		return err
	}
	if err := t.listJobs(ctx, tx, row.id, info); err != nil {
		return err
	}
	if info.Type.hasSlots() {
		if err := tx.QueryRow(ctx, t.sql.CountOwners, row.id).Scan(&info.Used); err != nil {
			return err
		}
		info.fillSlots(row.rules)
		return nil
	}
	return t.inspectWindow(ctx, tx, info, row)
}

// readKey reads the row of a key. The ID of a key that does not exist is 0.
func (t *Throttler) readKey(ctx context.Context, tx pgx.Tx, info *KeyInfo) (row keyRow, err error) {
	row.ref = info.Ref
	var options []byte
	var now, hold int64
	err = tx.QueryRow(ctx, t.sql.OneKey, string(info.Type), info.Name, info.Key).Scan(&now, &row.limiter, &options, &row.id, &row.state, &hold, &info.Waiting)
	if err != nil {
		return row, err
	}
	info.Now, info.MeanHold = time.UnixMicro(now), time.Duration(hold)*time.Microsecond
	if row.limiter == 0 && info.Type != Mutex { // a mutex is made by the first job that names it
		return row, ErrUnknownLimiter
	}
	row.rules, err = readRules(info.Type, options)
	return row, err
}

// inspectWindow sums up what the key has, or all keys of a dynamic window.
func (t *Throttler) inspectWindow(ctx context.Context, tx pgx.Tx, info *KeyInfo, row keyRow) error {
	rules, now := row.rules.window, info.Now.UnixMicro()
	states := map[string]string{}
	if rules.Shares != nil {
		var keys []dynamicKey
		if err := query(ctx, tx, appendRows(&keys), t.sql.AllKeys, row.limiter); err != nil {
			return err
		}
		for _, k := range keys {
			states[k.Key] = k.State
		}
	}
	if row.hasWindow() {
		states[info.Key] = row.state
	}
	windows, err := window.Read(states, rules, now)
	if err != nil {
		return err
	}
	if w := windows[info.Key]; row.hasWindow() {
		windows = map[string]*window.Window{info.Key: w}
		info.Limit, info.Next = int(w.PresentLimit()), time.UnixMicro(max(w.FirstFree(now), now))
	} else {
		info.Limit = int(rules.Shares.Capacity)
		err = tx.QueryRow(ctx, t.sql.AllWaiters, row.limiter).Scan(&info.Waiting)
	}
	for _, w := range windows {
		info.Used += int(w.Started())
		info.Reserved += int(w.Reserved())
	}
	return err
}

func (t *Throttler) listJobs(ctx context.Context, tx pgx.Tx, key int64, info *KeyInfo) error {
	rowModes := map[int]string{relaxedRow: "relaxed", strictRow: "strict", keptRow: "kept"}
	info.Holders, info.Waiters = []Holder{}, []Waiter{}
	var h Holder
	var mode int
	var until *time.Time
	add := func() {
		h.Mode, h.Until = cmp.Or(rowModes[mode], strconv.Itoa(mode)), time.Time{}
		if until != nil {
			h.Until = *until
		}
		name, named := strings.CutPrefix(h.Owner, namedOwner)
		if h.Owner = name; !named {
			h.Owner = ""
		}
		info.Holders = append(info.Holders, h)
	}
	err := query(ctx, tx, eachRow(add, &h.Owner, &h.Job, &mode, &h.Since, &until, &h.Fence), t.sql.ListHolders, key)
	if err != nil {
		return err
	}
	return query(ctx, tx, appendRows(&info.Waiters), t.sql.ListWaiters, key)
}

func (info *KeyInfo) fillSlots(r rules) {
	now := info.Now.UnixMicro()
	s := &slots{now: now, limit: r.maxCount, measuredHold: info.MeanHold.Microseconds(), owners: map[string]int64{}, waiting: int64(info.Waiting)}
	for _, h := range info.Holders {
		owner := ownerOf(h.Job, h.Owner)
		if since, ok := s.owners[owner]; !ok || h.Since.UnixMicro() < since {
			s.owners[owner] = h.Since.UnixMicro()
		}
	}
	last := int64(0)
	for _, w := range info.Waiters {
		s.waiters = append(s.waiters, waiter{waiterID: waiterID{Job: w.Job}, Wake: w.Wake.UnixMicro(), InWorker: w.InWorker})
		last = w.Job
	}
	s.otherOwners = max(int64(info.Used-len(s.owners)), 0)
	info.Limit = int(s.limit)
	info.Next = time.UnixMicro(now + s.expectedWait(last+1, false))
}
