package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weir-go/weir/reload"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
	"github.com/weir-go/weir/cmd/weir/internal/gateway"
	"github.com/weir-go/weir/cmd/weir/internal/process"
	"github.com/weir-go/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weir-go/weir/cmd/weir/internal/rls"
	"github.com/weir-go/weir/cmd/weir/internal/rlsconfig"
)

// gateway serves until SIGTERM or SIGINT.
func (c *command) gateway(args []string) int {
	var o process.Options
	f := serverFlags("gateway", "clients connect", &o)
	if status, ok := c.parseFlags(f, args); !ok {
		return status
	}
	switch {
	case o.Config == "" && f.NArg() > 0:
		c.complain("weir gateway: the file must follow -config: weir gateway -config %s\n", f.Arg(0))
		return exitError
	case o.Config == "":
		c.complain("weir gateway: -config must name a file\n")
		return exitError
	case f.NArg() > 0:
		c.complain("weir gateway: takes no arguments, found %q\n", f.Arg(0))
		return exitError
	}
	return c.serve("weir gateway", o, gateway.Run)
}

// rlsFlags are the flags of weir rls.
type rlsFlags struct {
	run         process.Options
	translation ratelimitconfig.Options
	print       bool
}

// rls serves until SIGTERM or SIGINT.
func (c *command) rls(args []string) int {
	var o rlsFlags
	f := o.flags()
	if status, ok := c.parseFlags(f, args); !ok {
		return status
	}
	if err := o.check(f.Args()); err != nil {
		c.complain("weir rls: %v\n", err)
		return exitError
	}
	if o.print {
		text, err := o.translation.Print()
		if err == nil {
			_, err = c.stdout.Write(text)
		}
		return c.ended("weir rls", err)
	}
	return c.serve("weir rls", o.run, rls.Run)
}

// serverFlags returns the flags of every server. clients says who does what to its address.
func serverFlags(command, clients string, o *process.Options) *flag.FlagSet {
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	f.StringVar(&o.Config, "config", "", "the configuration `file`, which is read again when it changes, and at SIGHUP")
	f.StringVar(&o.Listen, "listen", "", "the `address` that "+clients+" to, in place of the file's")
	f.StringVar(&o.Admin, "admin", "", "the `address` of the dashboard, /metrics, /live and /ready, in place of the file's; without a host, as in :9900, on the loopback interface only; off for none")
	return f
}

// serve runs a server until SIGTERM or SIGINT.
func (c *command) serve(name string, o process.Options, run func(context.Context, process.Options) error) int {
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	ignoreBrokenPipes()
	o.Stdout, o.Stderr, o.Stop = c.stdout, c.stderr, stop
	err := run(context.Background(), o)
	signal.Stop(stop) // before complain, which waits for the standard error
	return c.ended(name, err)
}

// ended prints the error of a command, and returns its exit status.
func (c *command) ended(command string, err error) int {
	if err == nil {
		return exitOK
	}
	if _, ok := errors.AsType[*reload.FileError](err); ok {
		c.complain("%v\n", err)
		return exitInvalid
	}
	c.complain("%s: %v\n", command, err)
	return exitError
}

// flags returns the flags, which set the fields of o.
func (o *rlsFlags) flags() *flag.FlagSet {
	f := serverFlags("rls", "Envoy connects", &o.run)
	t := &o.translation
	f.StringVar(&t.Dir, "ratelimit-config", "", "a `directory` with the *.yaml files of envoyproxy/ratelimit, which are read again when they change; with -config, the file has everything but the domains")
	f.Func("mode", "with -ratelimit-config: how limits count, in the `mode` exact (a sliding window in ten steps; a rejected request costs nothing) or envoy (as envoyproxy/ratelimit does); exact, or what -config says, unless set", func(text string) error {
		if t.Mode.UnmarshalText([]byte(text)) != nil || t.Mode == rlsconfig.DefaultMode {
			return errors.New("must be exact or envoy")
		}
		return nil
	})
	f.BoolVar(&t.MergeDomains, "merge-domains", false, "with -ratelimit-config: a domain can be in several files, as with MERGE_DOMAIN_CONFIG of envoyproxy/ratelimit")
	f.StringVar(&t.Redis, "redis", "", "with -ratelimit-config: the `URL` of the Redis server with the counters; they are in the process unless it or -postgres is set")
	f.StringVar(&t.Postgres, "postgres", "", "with -ratelimit-config: the `URL` of the PostgreSQL database with the counters")
	f.BoolVar(&o.print, "print", false, "with -ratelimit-config: print the equivalent file for -config, and exit")
	return f
}

// check compares the flags with each other, and sets what follows from them.
func (o *rlsFlags) check(others []string) error {
	t := &o.translation
	switch {
	case o.run.Config == "" && t.Dir == "" && len(others) > 0:
		return fmt.Errorf("the file must follow -config: weir rls -config %s", others[0])
	case len(others) > 0:
		return fmt.Errorf("takes no arguments, found %q", others[0])
	case o.run.Config == "" && t.Dir == "":
		return errors.New("-config must name a file, or -ratelimit-config a directory")
	case t.Dir == "":
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"mode", t.Mode != rlsconfig.DefaultMode}, {"merge-domains", t.MergeDomains}, {"redis", t.Redis != ""},
			{"postgres", t.Postgres != ""}, {"print", o.print},
		} {
			if f.set {
				return fmt.Errorf("-%s must not be set without -ratelimit-config", f.name)
			}
		}
		return nil
	case t.Redis != "" && t.Postgres != "":
		return errors.New("-redis and -postgres must not both be set")
	case o.run.Config != "" && (t.Redis != "" || t.Postgres != ""):
		return errors.New("-redis and -postgres must not be set with -config: set counters.store in the file")
	}
	t.Config = o.run.Config
	o.run.Config, o.run.Read = t.Name(), t.Reader()
	return t.CheckStore()
}

// readyTimeout is how long a gateway has to say whether it is ready.
const readyTimeout = 2 * time.Second

// ready asks the gateway at an admin address whether it can take requests. It is for the health check of a container, which
// has no other program to ask with.
func (c *command) ready(args []string) int {
	address := fileconfig.DefaultAdmin
	switch len(args) {
	case 0:
	case 1:
		address = args[0]
	default:
		c.complain("weir ready: takes one address, found %q\n", args)
		return exitError
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		c.complain("weir ready: must be the admin address of a gateway, such as %s: %v\n", fileconfig.DefaultAdmin, err)
		return exitError
	}
	status, body, err := fetch("http://" + address + "/ready")
	if err != nil {
		c.complain("weir ready: %v\n", err)
		return exitInvalid
	}
	say(c.stdout, "%s", body)
	if status != http.StatusOK {
		return exitInvalid
	}
	return exitOK
}

// fetch gets a URL. It does not ask a proxy that the environment names.
func fetch(url string) (status int, body []byte, err error) {
	client := http.Client{Timeout: readyTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url) //nolint:noctx // the client has a timeout
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(response.Body, 64<<10))
	return response.StatusCode, body, err
}
