// Weir checks and explains configuration files of package reload.
//
//	weir check FILE...               # everything that is wrong, with line and column
//	weir explain FILE [PIPELINE...]  # each pipeline in words
//	weir schema                      # the JSON schema of the format, for editors
//
// A FILE of "-" is the standard input; any other must be a regular file, and not a pipe. The exit status is 0 if all is well, 1 if a
// file is wrong, and 2 if the command is, a file cannot be read, or the output cannot
// be written.
//
// A program may have kinds and functions of its own, which weir does not know: it
// accepts any that are not spelt much like one that it knows. With -strict a file
// may name only weir's own kinds, and what is given by -key, -handle, -permits,
// -fallback, -control, -error, -outcome, -behavior and -store.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/weir-go/weir/internal/regularfile"
	"github.com/weir-go/weir/reload"
)

// The exit statuses.
const (
	fine    = 0
	wrong   = 1
	trouble = 2
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

const usage = `usage:
  weir check [flags] FILE...               everything that is wrong, with line and column
  weir explain [flags] FILE [PIPELINE...]  each pipeline in words
  weir schema                              the JSON schema of the format, for editors

A FILE of "-" is the standard input.

flags:
`

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &output{to: stdout}
	c := &command{stdin: stdin, stdout: out, stderr: stderr, kinds: reload.NewKinds()}
	status := c.run(args)
	if out.err != nil {
		c.complain("weir: %v\n", out.err)
		return trouble
	}
	return status
}

// An output remembers that it could not be written.
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
		return c.with(name, args, 1, c.check)
	case "explain":
		return c.with(name, args, 1, c.explain)
	case "schema":
		return c.with(name, args, 0, c.schema)
	case "help", "-h", "-help", "--help":
		c.help(c.flags(name), c.stdout)
		return fine
	case "":
		c.help(c.flags(name), c.stderr)
	default:
		c.complain("weir: unknown command %q, must be check, explain or schema\n", name)
	}
	return trouble
}

// A command is one run of the program.
type command struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	kinds          *reload.Kinds
	strict         bool
}

func (c *command) flags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(c.stderr)
	f.Usage = func() {} // with knows whether it is asked for
	f.BoolVar(&c.strict, "strict", false, "accept weir's own kinds only, and the functions that are given")
	for _, what := range reload.Registrations() {
		f.Func(what, "the `name` of what the program registers with Kinds.Register"+strings.ToUpper(what[:1])+what[1:], func(name string) error {
			c.kinds.Assume(what, name)
			return nil
		})
	}
	return f
}

func (c *command) help(f *flag.FlagSet, to io.Writer) {
	say(to, "%s", usage)
	f.SetOutput(to)
	f.PrintDefaults()
	f.SetOutput(c.stderr)
}

// with reads the flags, and does it with the other arguments.
func (c *command) with(name string, args []string, least int, do func(args []string) int) int {
	f := c.flags(name)
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		c.help(f, c.stdout)
		return fine
	case err != nil:
		c.help(f, c.stderr)
		return trouble
	case f.NArg() < least:
		c.complain("weir %s: which file?\n", name)
		return trouble
	}
	if !c.strict {
		c.kinds.AcceptUnknown()
	}
	return do(f.Args())
}

// check checks every file, and says of each that is right that it is.
func (c *command) check(files []string) int {
	status := fine
	for _, name := range files {
		f, problem := c.parse(name)
		if problem == fine {
			say(c.stdout, "%s: ok: %s\n", name, summary(f))
		}
		status = max(status, problem)
	}
	return status
}

func summary(f *reload.File) string {
	words := count(len(f.Pipelines()), "pipeline") + ", " + count(len(f.Limiters()), "shared limiter")
	if budgets := len(f.Budgets()); budgets > 0 {
		words += ", " + count(budgets, "budget")
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
	f, problem := c.parse(args[0])
	if problem != fine {
		return problem
	}
	if err := f.Explain(c.stdout, args[1:]...); err != nil {
		c.complain("weir: %v\n", err)
		return trouble
	}
	return fine
}

func (c *command) schema(args []string) int {
	if len(args) > 0 {
		c.complain("weir schema: takes no file, found %s\n", strings.Join(args, " "))
		return trouble
	}
	if _, err := c.stdout.Write(reload.Schema()); err != nil {
		c.complain("weir: %v\n", err)
		return trouble
	}
	return fine
}

// parse reads a file, and says what is wrong with it.
func (c *command) parse(name string) (*reload.File, int) {
	content, err := c.read(name)
	if err != nil {
		c.complain("weir: %v\n", err)
		return nil, trouble
	}
	f, err := reload.Parse(name, content, c.kinds)
	if err == nil {
		return f, fine
	}
	c.complain("%v\n", err)
	if _, ok := errors.AsType[*reload.FileError](err); !ok {
		return nil, trouble // the flags are at fault
	}
	return nil, wrong
}

func (c *command) complain(format string, args ...any) { say(c.stderr, format, args...) }

// say prints. What cannot be written to the standard output, run reports.
func say(to io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(to, format, args...) }

// maxRead is how much of a file is read: more than Parse takes, and not all of /dev/zero.
const maxRead = 8 << 20

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
