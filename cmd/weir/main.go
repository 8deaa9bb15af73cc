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
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	_ "time/tzdata" // for calendars, on machines without a time zone database

	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/plan"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
	"github.com/weir-go/weir/cmd/weir/internal/rlsconfig"
	"github.com/weir-go/weir/internal/regularfile"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/simulate"
)

// The exit statuses.
const (
	exitOK      = 0
	exitInvalid = 1 // a file is not valid, a server is not ready, or an expectation is not met
	exitError   = 2
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// usages are how the commands are called, and what they do.
var usages = [][2]string{
	{"weir gateway -config FILE [flags]", "a reverse proxy with the limits and pipelines of FILE"},
	{"weir rls -config FILE [flags]", "a rate limit service for Envoy with the limits of FILE"},
	{"weir rls -ratelimit-config DIR [flags]", "the same with the files of envoyproxy/ratelimit"},
	{"weir ready [ADDRESS]", "whether the server with that admin address can take requests"},
	{"weir check [flags] FILE...", "all problems, with line and column"},
	{"weir explain [flags] FILE [PIPELINE...]", "each pipeline, and the parts for servers, in words"},
	{"weir explain -request REQUEST FILE", "which way a request would go through the gateway"},
	{"weir explain -descriptor DESCRIPTOR FILE", "which limit of the rate limit service is for a descriptor"},
	{"weir simulate [flags] FILE", "what FILE would do under a load"},
	{"weir schema [-load]", "the JSON schema of the format or of load files, for editors"},
	{"weir version", "the version of the program"},
}

// usage returns how the command is called; all commands if name is empty.
func usage(name string) string {
	text := "usage:\n"
	for _, u := range usages {
		if strings.HasPrefix(u[0]+" ", strings.TrimSpace("weir "+name)+" ") {
			text += fmt.Sprintf("  %-41s %s\n", u[0], u[1])
		}
	}
	return text + `
A FILE of "-" is the standard input. A REQUEST is
  ` + plan.Grammar + `
and a DESCRIPTOR is
  ` + rlsconfig.Grammar + "\n"
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

// A command is one run of the program.
type command struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	kinds          *reload.Kinds
	strict         bool
	runScenario    func(context.Context, simulate.Scenario) (*simulate.Result, error)
}

func newCommand(stdin io.Reader, stdout, stderr io.Writer) *command {
	c := &command{stdin: stdin, stdout: stdout, stderr: stderr, kinds: reload.NewKinds(), runScenario: simulate.Run}
	gatewayconfig.Register(c.kinds, gatewayconfig.Runtime{})
	rlsconfig.Register(c.kinds, rlsconfig.Runtime{})
	return c
}

// nameFlags adds the flags that say which names a file can have.
func (c *command) nameFlags(f *flag.FlagSet) {
	f.BoolVar(&c.strict, "strict", false, "accept only weir's own kinds, and the names given by the flags below")
	for _, what := range reload.Registrations() {
		f.Func(what, "the `name` of what the program registers with Kinds.Register"+strings.ToUpper(what[:1])+what[1:], func(name string) error {
			c.kinds.Assume(what, name)
			return nil
		})
	}
}

// parseFlags parses the flags of a command. If ok is false, the command ends with the status.
func (c *command) parseFlags(f *flag.FlagSet, args []string) (status int, ok bool) {
	f.SetOutput(io.Discard)
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		say(c.stdout, "%s\nflags:\n", usage(f.Name()))
		f.SetOutput(c.stdout)
		f.PrintDefaults()
		return exitOK, false
	case err != nil:
		c.complain("weir %s: %v; weir %s -h lists the flags\n", f.Name(), err, f.Name())
		return exitError, false
	}
	return exitOK, true
}

// parseFiles is parseFlags for a command that takes files after the flags.
func (c *command) parseFiles(f *flag.FlagSet, args []string) (files []string, status int) {
	c.nameFlags(f)
	if status, ok := c.parseFlags(f, args); !ok {
		return nil, status
	}
	if f.NArg() == 0 {
		c.complain("weir %s: which file?\n", f.Name())
		return nil, exitError
	}
	for _, arg := range f.Args()[1:] {
		if len(arg) > 1 && arg[0] == '-' {
			c.complain("weir %s: flags stand before the file, found %s after it\n", f.Name(), arg)
			return nil, exitError
		}
	}
	if !c.strict {
		c.kinds.AcceptUnknown()
	}
	return f.Args(), exitOK
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

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
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
		return c.explainRequest(f, *request, files[1:])
	case given["descriptor"]:
		return c.explainDescriptor(f, *descriptor, files[1:])
	}
	if err := f.Explain(c.stdout, files[1:]...); err != nil {
		c.complain("weir: %v\n", err)
		return exitError
	}
	return exitOK
}

// explainRequest says which way a request would go through the gateway of f.
func (c *command) explainRequest(f *reload.File, request string, others []string) int {
	if len(others) > 0 {
		c.complain("weir explain: with -request there is only a file, found %s\n", strings.Join(others, " "))
		return exitError
	}
	r, err := plan.ParseRequest(request)
	if err != nil {
		c.complain("weir explain: -request: %v\na request is\n  %s\n", err, plan.Grammar)
		return exitError
	}
	p, err := plan.New(f)
	if err == nil {
		err = p.Write(c.stdout, r)
	}
	if err != nil {
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

// parse parses a file, and prints its errors. The status is exitOK if there are none.
func (c *command) parse(name string) (*reload.File, int) {
	content, err := c.read(name)
	if err != nil {
		c.complain("weir: %v\n", err)
		return nil, exitError
	}
	return c.parseContent(name, content)
}

// parseContent is parse for a file that was read.
func (c *command) parseContent(name string, content []byte) (*reload.File, int) {
	f, err := reload.Parse(name, content, c.kinds)
	if gateway, rls := sections(content); gateway && rls {
		c.complain("%s: has both gateway and rls, which must be in two files: weir gateway refuses a file with rls, and weir rls one with gateway\n", name)
		return nil, exitInvalid
	}
	if err == nil {
		return f, exitOK
	}
	c.complain("%v\n", err)
	if _, ok := errors.AsType[*reload.FileError](err); !ok {
		return nil, exitError // the flags are wrong
	}
	return nil, exitInvalid
}

// sections returns which of the servers' fields a file has, also if there are problems with it: names that both give are one, but
// renaming them would be in vain.
func sections(content []byte) (gateway, rls bool) {
	var top struct{ Gateway, RLS yaml.Node }
	_ = yaml.Load(content, &top)
	return !top.Gateway.IsZero(), !top.RLS.IsZero()
}

// complain prints to the standard error.
func (c *command) complain(format string, args ...any) { say(c.stderr, format, args...) }

// say prints. It ignores errors, because run reports those of the standard output.
func say(to io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(to, format, args...) }

// maxRead bounds the bytes that are read of a file.
const maxRead = fileconfig.MaxSize

// read returns the content of a file, or of the standard input.
func (c *command) read(name string) ([]byte, error) {
	if name != "-" {
		content, err := regularfile.Read(name, maxRead)
		switch _, named := errors.AsType[*fs.PathError](err); {
		case errors.Is(err, regularfile.ErrNotRegular):
			err = fmt.Errorf("%s: %w; with - as the file, weir reads the standard input", name, err)
		case err != nil && !named:
			err = fmt.Errorf("%s: %w", name, err)
		}
		return content, err
	}
	content, err := io.ReadAll(io.LimitReader(c.stdin, maxRead+1))
	if err == nil && len(content) > maxRead {
		err = fmt.Errorf("-: %w: it has more than %d bytes", regularfile.ErrTooLarge, maxRead)
	}
	return content, err
}
