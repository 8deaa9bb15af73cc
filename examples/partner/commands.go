package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"time"
)

// postgresURL is the environment variable with the URL of PostgreSQL. A flag shows its value, which can have a password, to
// all users of the machine.
const postgresURL = "WEIR_POSTGRES_URL"

// serveCommand is "partner serve": one instance.
func serveCommand(ctx context.Context, arguments []string, in io.Reader, out, errOut io.Writer) error {
	flags := flag.NewFlagSet("partner serve", flag.ContinueOnError)
	var o serveOptions
	flags.StringVar(&o.listen, "listen", "127.0.0.1:0", "the `address` to listen on")
	flags.StringVar(&o.postgres, "postgres", "", "the `URL` of PostgreSQL (default "+postgresURL+")")
	flags.StringVar(&o.schema, "schema", "partner", "the schema of the tables, which is created if it does not exist")
	flags.StringVar(&o.name, "name", "one", "the instance's `name` in logs and traces")
	flags.IntVar(&o.connections, "connections", 16, "the most connections to PostgreSQL")
	variantName := flags.String("variant", "weir", "the limiter: "+variantNames())
	level := slog.LevelInfo
	flags.TextVar(&level, "log-level", level, "the least level of the lines on standard error")
	withParent := flags.Bool("with-parent", false, "end when standard input ends")
	if err := parse(flags, arguments, errOut); err != nil {
		return err
	}
	if o.postgres == "" {
		o.postgres = os.Getenv(postgresURL)
	}
	var err error
	if o.variant, err = variantByName(*variantName); err != nil {
		return &usageError{err}
	}
	switch {
	case o.postgres == "":
		return usage("-postgres or %s must be the URL of a PostgreSQL server", postgresURL)
	case o.schema == "":
		return usage("-schema must not be empty")
	case o.connections < 1 || o.connections > 1000:
		return usage("-connections must be from 1 to 1000, got %d", o.connections)
	}
	o.logger = slog.New(slog.NewJSONHandler(errOut, &slog.HandlerOptions{Level: level}))
	if *withParent {
		signal.Ignore(os.Interrupt) // Ctrl-C reaches the parent too, which ends this process when it is ready to
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		go func() {
			_, _ = io.Copy(io.Discard, in)
			stop()
		}()
	}
	return serve(ctx, o, func(a net.Addr) { fmt.Fprintf(out, "%v\n", a) })
}

// loadFlags are the flags of the demo and of "partner load".
type loadFlags struct {
	length time.Duration
	posts  float64
	users  int
	every  time.Duration
	json   bool
}

func (l *loadFlags) register(flags *flag.FlagSet) {
	flags.DurationVar(&l.length, "for", time.Minute, "how long the load lasts: the demo's ten minutes are scaled to it, and its rates stay")
	flags.Float64Var(&l.posts, "posts", 1, "how many POST requests a second each instance gets")
	flags.IntVar(&l.users, "users", 1, "how many users the requests are from, in turn")
	flags.DurationVar(&l.every, "every", 0, "how long a row of the table is (default a sixtieth of the load)")
	flags.BoolVar(&l.json, "json", false, "print the result as JSON, and no table")
}

// Bounds of the flags, so that a run ends and its samples fit into the memory.
const (
	minLength   = time.Millisecond
	maxLength   = time.Hour
	maxRate     = 10_000
	maxRequests = 1_000_000
	maxUsers    = 10_000
)

// loads returns what to send. The profile of the GETs is gets, or the demo's if that is nil.
func (l *loadFlags) loads(targets []target, gets profile) (*loads, error) {
	if gets == nil {
		gets = demo.scaled(l.length)
	}
	length := gets.length()
	switch {
	case length < minLength || length > maxLength:
		return nil, usage("the load must last from %v to %v, got %v", minLength, maxLength, length)
	case !(l.posts > 0 && l.posts <= maxRate): // also not a number
		return nil, usage("-posts must be above 0 and at most %d, got %g: the first tells the time by PostgreSQL's clock", maxRate, l.posts)
	case l.users < 1 || l.users > maxUsers:
		return nil, usage("-users must be from 1 to %d, got %d", maxUsers, l.users)
	case l.every < 0 || l.every > 0 && l.every < 10*time.Millisecond:
		return nil, usage("-every must be at least 10ms, got %v", l.every)
	}
	if l.every == 0 {
		l.every = max(length/60, 10*time.Millisecond)
	}
	posts := constant(l.posts, max(1, int(math.Round(l.posts*length.Seconds()))))
	if n := gets.requests() + posts.requests(); n > maxRequests {
		return nil, usage("the load must have at most %d requests, got %d", maxRequests, n)
	}
	all := &loads{targets: targets, gets: gets, posts: posts}
	for i := range l.users {
		all.users = append(all.users, fmt.Sprintf("user-%d", i+1))
	}
	return all, nil
}

// loadCommand is "partner load": a load for instances that run already.
func loadCommand(ctx context.Context, arguments []string, out, errOut io.Writer) error {
	flags := flag.NewFlagSet("partner load", flag.ContinueOnError)
	var l loadFlags
	l.register(flags)
	urls := flags.String("targets", "", "the `URLs` of the instances, with commas between; each gets a load of its own; required")
	rate := flags.Float64("rate", 0, "send at this `rate` a second, instead of the demo's")
	requests := flags.Int("requests", 0, "with -rate: how many GET requests each instance gets")
	if err := parse(flags, arguments, errOut); err != nil {
		return err
	}
	var gets profile
	if *rate != 0 || *requests != 0 {
		if !(*rate > 0 && *rate <= maxRate) || *requests < 1 || *requests > maxRequests {
			return usage("-rate must be above 0 and at most %d, and -requests from 1 to %d, got %g and %d", maxRate, maxRequests, *rate, *requests)
		}
		gets = constant(*rate, *requests)
	}
	targets, err := parseTargets(*urls)
	if err != nil {
		return err
	}
	all, err := l.loads(targets, gets)
	if err != nil {
		return err
	}
	if !l.json {
		all.introduce(out)
	}
	r, err := l.measure(ctx, all, variant{}, out)
	if r == nil {
		return err
	}
	return errors.Join(err, l.conclude(r, out))
}

func parseTargets(list string) ([]target, error) {
	if list == "" {
		return nil, usage("-targets must have the URLs of the instances")
	}
	var targets []target
	for i, text := range strings.Split(list, ",") {
		text = strings.TrimRight(strings.TrimSpace(text), "/")
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, usage("-targets must be URLs such as http://127.0.0.1:8080, got %q", text)
		}
		targets = append(targets, target{instanceName(i), text})
	}
	return targets, nil
}

func instanceName(i int) string {
	if names := []string{"one", "two", "three", "four"}; i < len(names) {
		return names[i]
	}
	return fmt.Sprint(i + 1)
}

// measure runs the load with its table, and returns the verdict. If ctx ends before the load does, the verdict is about
// what was sent by then.
func (l *loadFlags) measure(ctx context.Context, all *loads, v variant, out io.Writer) (*verdict, error) {
	if l.json {
		out = io.Discard
	}
	t := newTable(out, all, l.every)
	following, stop := context.WithCancel(context.Background())
	followed := make(chan struct{})
	close(followed)
	clock, err := all.run(ctx, t, func(start time.Time) {
		followed = make(chan struct{})
		go func() {
			defer close(followed)
			t.follow(following, start)
		}()
	})
	stop()
	<-followed
	if clock.IsZero() {
		return nil, err
	}
	return newVerdict(v, t, clock), err
}

// conclude prints the verdict.
func (l *loadFlags) conclude(r *verdict, out io.Writer) error {
	if l.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(r); err != nil {
			return err
		}
	} else {
		r.print(out)
	}
	return r.err()
}
