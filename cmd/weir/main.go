// Weir checks and explains configuration files of package reload, and runs a gateway by one.
//
// weir help lists its commands.
//
// A FILE of "-" is the standard input. Any other FILE must be a regular file, and not a pipe. The exit status is 0 if all
// files are valid, 1 if a file is not, a server is not ready or an expectation of weir simulate is not met, and 2 if the
// command line is wrong, a file cannot be read, or the output cannot be written.
//
// A program can register its own kinds and functions, which weir does not know. It accepts any name that is not spelled
// much like a name that it knows. With -strict a file may name only weir's own kinds, and the names given by -key,
// -handle, -permits, -fallback, -control, -error, -outcome, -behavior and -store. A file with the field gateway or rls is
// for weir itself, and is always checked like that.
package main

import (
	"flag"
	"io"
	"os"
	"runtime/debug"
	"strings"
	_ "time/tzdata" // for calendars, on machines without a time zone database

	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/simulate"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/plan"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
	"github.com/weir-go/weir/cmd/weir/internal/rlsconfig"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &output{to: stdout}
	c := newCommand(stdin, out, stderr)
	status := c.run(args)
	if out.err != nil {
		c.complain("weir: %v\n", out.err)
		return exitError
	}
	return status
}

// An output keeps the first error of writing.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

func (c *command) run(args []string) int {
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	switch name {
	case "check":
		return c.check(args)
	case "explain":
		return c.explain(args)
	case "schema":
		return c.schema(args)
	case "gateway":
		return c.gateway(args)
	case "rls":
		return c.rls(args)
	case "simulate":
		return c.simulate(args)
	case "ready":
		return c.ready(args)
	case "version":
		return c.version(args)
	case "help", "-h", "-help", "--help":
		say(c.stdout, "%s\nweir COMMAND -h lists the flags of a command.\n", usage(""))
		return exitOK
	case "":
		say(c.stderr, "%s", usage(""))
	default:
		c.complain("weir: unknown command %q, must be gateway, rls, ready, check, explain, simulate, schema or version\n", name)
	}
	return exitError
}

// check checks every file, and prints a line for each valid one.
func (c *command) check(args []string) int {
	files, status := c.parseFiles(flag.NewFlagSet("check", flag.ContinueOnError), args)
	for _, name := range files {
		f, problem := c.parse(name)
		if problem == exitOK {
			say(c.stdout, "%s: ok: %s\n", name, summary(f))
			for _, warning := range append(gatewayconfig.Warnings(f), rlsconfig.Warnings(f)...) {
				c.complain("%s: warning: %s\n", name, warning)
			}
		}
		status = max(status, problem)
	}
	return status
}

// summary returns how many pipelines, named limiters and budgets f has.
func summary(f *reload.File) string {
	words := count(len(f.Pipelines()), "pipeline") + ", " + count(len(f.Limiters()), "named limiter")
	if budgets := len(f.Budgets()); budgets > 0 {
		words += ", " + count(budgets, "budget")
	}
	if g, ok := reload.SectionOf[gatewayconfig.Gateway](f, gatewayconfig.Field); ok {
		words += ", gateway with " + count(len(g.Routes), "route")
	}
	if r, ok := reload.SectionOf[rlsconfig.RLS](f, rlsconfig.Field); ok {
		words += ", rls with " + count(r.Rules(), "limit")
	}
	return words
}

func (c *command) explain(args []string) int {
	flags := flag.NewFlagSet("explain", flag.ContinueOnError)
	request := flags.String("request", "", "the `request` to explain")
	descriptor := flags.String("descriptor", "", "the `descriptor` to explain")
	files, status := c.parseFiles(flags, args)
	if files == nil {
		return status
	}
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	f, problem := c.parse(files[0])
	if problem != exitOK {
		return problem
	}
	switch {
	case given["request"] && given["descriptor"]:
		c.complain("weir explain: there can be -request or -descriptor, not both\n")
		return exitError
	case given["request"]:
		return c.explainOne(f, files[1:], "request", plan.Grammar, func() (func() error, error) {
			r, err := plan.ParseRequest(*request)
			return func() error { return plan.Write(c.stdout, f, r) }, err
		})
	case given["descriptor"]:
		return c.explainOne(f, files[1:], "descriptor", rlsconfig.Grammar, func() (func() error, error) {
			r, err := rlsconfig.ParseRequest(*descriptor)
			return func() error { return rlsconfig.Find(c.stdout, f, r) }, err
		})
	}
	if err := f.Explain(c.stdout, files[1:]...); err != nil {
		c.complain("weir: %v\n", err)
		return exitError
	}
	return exitOK
}

// explainOne explains what the flag is set to. parse reads that, and returns what writes the explanation.
func (c *command) explainOne(f *reload.File, others []string, flag, grammar string, parse func() (write func() error, err error)) int {
	if len(others) > 0 {
		c.complain("weir explain: with -%s there is only a file, found %s\n", flag, strings.Join(others, " "))
		return exitError
	}
	write, err := parse()
	if err != nil {
		c.complain("weir explain: -%s: %v\na %[1]s is\n  %[3]s\n", flag, err, grammar)
		return exitError
	}
	if err := write(); err != nil {
		c.complain("weir explain: %s: %v\n", f.Name(), err)
		return exitError
	}
	return exitOK
}

func (c *command) schema(args []string) int {
	f := flag.NewFlagSet("schema", flag.ContinueOnError)
	load := f.Bool("load", false, "the schema of load files of weir simulate")
	c.nameFlags(f)
	if status, ok := c.parseFlags(f, args); !ok {
		return status
	}
	if f.NArg() > 0 {
		c.complain("weir schema: takes no file, found %s\n", strings.Join(f.Args(), " "))
		return exitError
	}
	if !c.strict {
		c.kinds.AcceptUnknown()
	}
	schemaOf := c.kinds.Schema
	if *load {
		schemaOf = simulate.ScenarioSchema
	}
	schema, err := schemaOf()
	if err == nil {
		_, err = c.stdout.Write(schema)
	}
	if err != nil {
		c.complain("weir: %v\n", err)
		return exitError
	}
	return exitOK
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
