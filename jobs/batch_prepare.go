package jobs

// storedRows are what load has read, except for the rows that batch has.
type storedRows struct {
	held    map[holderID]int64 // how long released slots were held, µs; without the job
	dynamic []dynamicKey
	holders []readHolder
	waiters map[int64][]waiter // by key, then by job
}

// A dynamicKey is the row of a key of a dynamic window.
type dynamicKey struct {
	ID, Limiter int64
	Key, State  string
	Waiting     int64
}

// A readHolder is a row of jobs_holders as it was read, or the number of a key's rows if the mode is countRow.
type readHolder struct {
	Key       int64
	Owner     string
	Job       int64
	Mode      int16
	Live      bool
	Acquired  int64 // or the number of rows
	Finalized int64
}

const countRow = -1

// prepare makes slots and windows of what was read.
func (b *batch) prepare(stored storedRows) error {
	if err := b.prepareWindows(stored.dynamic); err != nil {
		return err
	}
	b.prepareHolders(stored.holders)
	for id, us := range stored.held {
		row := b.rows[id.key]
		if row == nil || row.slots == nil {
			continue
		}
		if _, still := row.slots.owners[id.owner]; !still { // otherwise other jobs of the owner hold the slot
			row.slots.learnHold(us)
		}
	}
	for id, row := range b.rows {
		if row.slots == nil {
			continue
		}
		row.slots.waiters = stored.waiters[id]
		if len(row.slots.waiters) < maxWaiters { // these are all
			row.waiting = int64(len(row.slots.waiters))
			row.slots.waiting = row.waiting
		}
	}
	return nil
}

func (b *batch) prepareWindows(keys []dynamicKey) (err error) {
	byLimiter := map[int64]*dynamicWindow{}
	for _, row := range b.rows {
		switch {
		case row.slots != nil:
		case row.rules.dynamic != nil:
			d := &dynamicWindow{rules: row.rules, keys: map[string]*window{}, now: b.now / row.rules.bucket}
			b.dynamic[row.id], byLimiter[row.limiter] = d, d
		default:
			if row.window, err = readWindow(row.state, row.rules, b.now); err != nil {
				return err
			}
		}
	}
	for _, k := range keys {
		d := byLimiter[k.Limiter]
		if d == nil || k.Key == "" {
			continue
		}
		w, err := readWindow(k.State, d.rules, b.now)
		if err != nil {
			return err
		}
		d.keys[k.Key] = w
		d.now = max(d.now, w.now)
		b.rows[k.ID] = &keyRow{id: k.ID, limiter: k.Limiter, ref: Ref{Type: DynamicWindow, Key: k.Key}, rules: d.rules, state: k.State,
			waiting: k.Waiting, storedWaiting: k.Waiting, window: w}
	}
	for _, d := range b.dynamic {
		for _, w := range d.keys {
			w.now = d.now // one time for all keys
		}
	}
	return nil
}

// prepareHolders sets the owners of slots, and notes rows that no longer count.
func (b *batch) prepareHolders(holders []readHolder) {
	seen, unread := map[holderID]bool{}, map[int64]int64{}
	for _, h := range holders {
		row, id := b.rows[h.Key], holderID{h.Key, h.Owner, h.Job}
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
			if h.Mode == strictRow && row.waiting > 0 {
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
			row.keptOwners[h.Owner] = true
		}
	}
	for key, n := range unread {
		b.rows[key].slots.otherOwners = max(n, 0)
	}
}
