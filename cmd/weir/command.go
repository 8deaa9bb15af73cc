package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir/internal/regularfile"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/simulate"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/plan"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
	"github.com/weir-go/weir/cmd/weir/internal/rlsconfig"
)

// The exit statuses.
const (
	exitOK      = 0
	exitInvalid = 1 // a file is not valid, a server is not ready, or an expectation is not met
	exitError   = 2
)

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

// complain prints to the standard error.
func (c *command) complain(format string, args ...any) { say(c.stderr, format, args...) }

// say prints. It ignores errors, because run reports those of the standard output.
func say(to io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(to, format, args...) }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
