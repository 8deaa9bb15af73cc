package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// A client is a line of traffic in the log.
type client struct {
	address string
	agent   string
	every   time.Duration // the mean time between two visits
	burst   int           // requests of a visit
	within  time.Duration // how long a visit takes
}

// clients are 40 visitors of a shop, an office behind one address, a crawler, and a partner who sends orders in batches.
func clients() []client {
	const browser = "Mozilla/5.0"
	all := []client{
		{"198.51.100.7", browser, 2 * time.Second, 5, 2 * time.Second},
		{"192.0.2.44", "crawler/2.1", 250 * time.Millisecond, 1, 0},
		{"203.0.113.200", "partner-batch/1.4", 4 * time.Minute, 50, 5 * time.Second},
	}
	for i := range 40 {
		all = append(all, client{fmt.Sprintf("203.0.113.%d", 10+i), browser, 2 * time.Minute, 8, 10 * time.Second})
	}
	return all
}

var paths = []string{"/", "/search", "/items/17", "/items/204", "/cart", "/orders"}

// writeLog writes ten minutes of requests in the combined log format. It writes the same each time.
func writeLog(w io.Writer) error {
	const length = 10 * time.Minute
	type entry struct {
		at     time.Duration
		client *client
		path   string
	}
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	var all []entry
	for _, c := range clients() {
		for visit := c.next(r); visit < length; visit += c.next(r) {
			for range c.burst {
				at := visit + time.Duration(r.Float64()*float64(c.within))
				if at < length {
					all = append(all, entry{at, &c, paths[r.IntN(len(paths))]})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	begin := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	out := bufio.NewWriter(w)
	for _, e := range all {
		at := begin.Add(e.at).Format("02/Jan/2006:15:04:05 -0700")
		if _, err := fmt.Fprintf(out, "%s - - [%s] \"GET %s HTTP/1.1\" 200 512 \"-\" %q\n", e.client.address, at, e.path, e.client.agent); err != nil {
			return err
		}
	}
	return out.Flush()
}

// next returns how long it is until the next visit.
func (c *client) next(r *rand.Rand) time.Duration {
	return time.Duration(r.ExpFloat64() * float64(c.every))
}
