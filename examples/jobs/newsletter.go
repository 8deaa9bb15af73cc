package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/jobs"
)

// mailArgs is a job that sends one mail of a tenant's newsletter.
type mailArgs struct {
	Tenant string `json:"tenant"`
	Number int    `json:"number"`
}

func (mailArgs) Kind() string { return "mail" }

// perTenant is the limit for mails. {tenant} is the field of the arguments above: each
// tenant has its own window, and all tenants share the capacity.
var perTenant = weir.Must(jobs.Declare(jobs.Throttle{Limits: []jobs.Limit{
	{DynamicWindow: "newsletter", Key: "{tenant}"},
}}))

// Plugins throttles all jobs with these arguments, by whatever worker they are run.
func (mailArgs) Plugins() []rivertype.Plugin { return perTenant.Plugins() }

// A newsletter is sent to the readers of several tenants.
type newsletter struct {
	out     io.Writer
	window  jobs.Definition
	tenants []tenant
}

type tenant struct {
	name  string
	mails int
	joins time.Duration // after the beginning
}

func (n *newsletter) workers(*app) *river.Workers {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[mailArgs]) error {
		return nil // a real worker sends the mail here
	}))
	return workers
}

func (n *newsletter) run(ctx context.Context, a *app) error {
	if err := a.throttler.Set(ctx, n.window); err != nil {
		return err
	}
	if err := n.awaitWindow(ctx, a); err != nil {
		return err
	}
	if err := n.send(ctx, a); err != nil {
		return err
	}
	return n.conclude(ctx, a)
}

// awaitWindow sleeps until a window begins, so that the table at the end has whole windows.
func (n *newsletter) awaitWindow(ctx context.Context, a *app) error {
	info, err := a.throttler.Inspect(ctx, jobs.Ref{Type: jobs.DynamicWindow, Name: "newsletter"})
	if err != nil {
		return err
	}
	return sleep(ctx, info.Now.Truncate(n.window.Interval).Add(n.window.Interval).Sub(info.Now))
}

// send inserts the mails of each tenant when it joins, and reports until all are sent.
func (n *newsletter) send(ctx context.Context, a *app) error {
	fmt.Fprintf(n.out, "%d mails every %v, over all tenants\n", n.window.Capacity, n.window.Interval)
	began := time.Now()
	joined := 0
	for tick := time.Duration(0); ; tick += 500 * time.Millisecond {
		if err := sleep(ctx, time.Until(began.Add(tick))); err != nil {
			return err
		}
		for joined < len(n.tenants) && n.tenants[joined].joins <= tick {
			if err := n.tenants[joined].insert(ctx, a); err != nil {
				return err
			}
			joined++
		}
		if tick%time.Second != 0 {
			continue
		}
		done, err := n.report(ctx, a, tick, n.tenants[:joined])
		if err != nil || done && joined == len(n.tenants) {
			return err
		}
	}
}

func (t tenant) insert(ctx context.Context, a *app) error {
	var mails []river.InsertManyParams
	for i := range t.mails {
		mails = append(mails, river.InsertManyParams{Args: mailArgs{Tenant: t.name, Number: i + 1}})
	}
	_, err := a.client.InsertMany(ctx, mails)
	return err
}

// report prints a line for each tenant, and reports whether all its mails are sent.
func (n *newsletter) report(ctx context.Context, a *app, at time.Duration, tenants []tenant) (done bool, err error) {
	sent, err := n.sent(ctx, a)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(n.out, "\n%v\n", at)
	done = true
	for _, t := range tenants {
		count := 0
		for _, w := range sent {
			count += w[t.name]
		}
		bar := strings.Repeat("#", 20*count/t.mails)
		if count == t.mails {
			fmt.Fprintf(n.out, "  %-8s %-20s %3d of %3d  done\n", t.name, bar, count, t.mails)
			continue
		}
		done = false
		info, err := a.throttler.Inspect(ctx, jobs.Ref{Type: jobs.DynamicWindow, Name: "newsletter", Key: t.name})
		if err != nil {
			return false, err
		}
		fmt.Fprintf(n.out, "  %-8s %-20s %3d of %3d  limit %d\n", t.name, bar, count, t.mails, info.Limit)
	}
	return done, nil
}

// sent returns how many mails of each tenant were sent in each window, by the time at
// which River fetched their jobs. On a very busy machine a job is fetched at the end of
// one window and starts in the next; it counts in the one before here.
func (n *newsletter) sent(ctx context.Context, a *app) ([]map[string]int, error) {
	rows, err := a.pool.Query(ctx, `select floor(extract(epoch from attempted_at) / $1)::bigint, args->>'tenant', count(*)
		from `+a.schema+`.river_job where state = 'completed' group by 1, 2 order by 1`, n.window.Interval.Seconds())
	if err != nil {
		return nil, err
	}
	var windows []map[string]int
	var window, count, last int64
	var tenant string
	_, err = pgx.ForEachRow(rows, []any{&window, &tenant, &count}, func() error {
		if len(windows) == 0 || window != last {
			windows = append(windows, map[string]int{})
		}
		windows[len(windows)-1][tenant], last = int(count), window
		return nil
	})
	return windows, err
}

// conclude prints how many mails of each tenant were sent in each window.
func (n *newsletter) conclude(ctx context.Context, a *app) error {
	windows, err := n.sent(ctx, a)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprint(n.out, "\nwindow")
	for _, t := range n.tenants {
		fmt.Fprintf(n.out, "%9s", t.name)
	}
	_, _ = fmt.Fprintln(n.out, "    total")
	for i, w := range windows {
		total := 0
		fmt.Fprintf(n.out, "%6d", i+1)
		for _, t := range n.tenants {
			fmt.Fprintf(n.out, "%9d", w[t.name])
			total += w[t.name]
		}
		fmt.Fprintf(n.out, "%9d\n", total)
	}
	fmt.Fprintf(n.out, `
A tenant that is alone has the whole capacity, %d. One that joins waits until the next
window, because the capacity of this one is used up, and then all have equal parts.
A tenant that is done leaves its part to the others. Together they have at most %[1]d
in a window.
`, n.window.Capacity)
	return nil
}
