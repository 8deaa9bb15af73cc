package weirpostgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// Load implements [backend.Backend].
func (b *Backend) Load(ctx context.Context, name string) (d *backend.Definition, now int64, err error) {
	if err := checkName(name); err != nil {
		return nil, 0, definitionError(b.explain("load", err))
	}
	err = b.query(ctx, "load", b.sql.load, []any{name}, 1, func(_ int, rows pgx.Rows) error {
		var version, kind, permits, period, refill, segments, anchor, every *int64
		var inForce *bool
		var zone, terms *string
		if err := rows.Scan(&now, &version, &kind, &permits, &period, &refill, &segments, &anchor, &inForce, &every, &zone, &terms); err != nil {
			return err
		}
		if d = nil; version == nil {
			return nil
		}
		schedule := rate.Schedule{Kind: rate.Kind(*kind), Permits: *permits, Period: *period, Refill: *refill, Segments: *segments, Anchor: *anchor}
		schedule.Every, schedule.Zone = rate.Cycle(*every), *zone
		d = &backend.Definition{Name: name, Schedule: schedule, Version: *version, AnchorInForce: *inForce, Terms: *terms}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return d, now, nil
}

// Define implements [backend.Backend].
func (b *Backend) Define(ctx context.Context, old int64, next *backend.Definition) (done bool, err error) {
	err = checkDefinition(next)
	if err == nil && next.Version <= 0 {
		err = errors.New("the version must be more than 0")
	}
	if err != nil {
		return false, definitionError(b.explain("define", err))
	}
	sql := b.sql.redefine
	if old == 0 {
		sql = b.sql.create
	}
	args := []any{
		next.Name, old, next.Version, int64(next.Kind), next.Permits, next.Period, next.Refill, next.Segments, next.Anchor, next.AnchorInForce,
		int64(next.Every), next.Zone, next.Terms, lockWaiting{lockWait(ctx, 1), false}.timeout(),
	}
	err = b.query(ctx, "define", sql, args, anyRows, func(int, pgx.Rows) error {
		done = true
		return nil
	})
	if codeOf(err) == lockNotAvailable || keyError(err) {
		err = definitionError(err)
	}
	return done && err == nil, err
}
