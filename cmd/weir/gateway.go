package main

import (
	"flag"
	"runtime/debug"

	"github.com/weir-go/weir/cmd/weir/internal/gateway"
	"github.com/weir-go/weir/cmd/weir/internal/process"
)

// gateway serves until SIGTERM or SIGINT.
func (c *command) gateway(args []string) int {
	var o process.Options
	f := flag.NewFlagSet("gateway", flag.ContinueOnError)
	f.StringVar(&o.Config, "config", "", "the configuration `file`, which is read again when it changes, and at SIGHUP")
	f.StringVar(&o.Listen, "listen", "", "the `address` that clients connect to, in place of the file's")
	f.StringVar(&o.Admin, "admin", "", "the `address` of the dashboard, /metrics, /live and /ready, in place of the file's; off for none")
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

// version prints the version of the program.
func (c *command) version(args []string) int {
	if len(args) > 0 {
		c.complain("weir version: takes no arguments, found %q\n", args[0])
		return exitError
	}
	version, goVersion := "(devel)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		if info.Main.Version != "" {
			version = info.Main.Version
		}
	}
	say(c.stdout, "weir %s %s\n", version, goVersion)
	return exitOK
}
