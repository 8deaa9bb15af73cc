package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	root "github.com/weir-go/weir"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/simulate"

	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
	"github.com/weir-go/weir/cmd/weir/internal/rlsconfig"
)

// A simulation is what the flags of weir simulate say.
type simulation struct {
	*command
	scenario     simulate.Scenario
	file         string
	against      string // the file to compare with; "": none
	format, out  string
	expected     []string
	expectations []simulate.Expectation // made of expected by check
	load         loadFlags
}

// simulate tells what a file would do under a load.
func (c *command) simulate(args []string) int {
	s := simulation{command: c}
	f := s.flags()
	if status, ok := c.parseFlags(f, args); !ok {
		return status
	}
	switch {
	case f.NArg() == 0:
		c.complain("weir simulate: which file?\n")
		return exitError
	case f.NArg() > 1:
		c.complain("weir simulate: takes one file, and flags stand before it; found %q after it\n", f.Arg(1))
		return exitError
	}
	if !c.strict {
		c.kinds.AcceptUnknown()
	}
	s.file = f.Arg(0)
	if err := s.check(); err != nil {
		return c.refuse(err)
	}
	if status := s.setLoad(); status != exitOK {
		return status
	}
	s.scenario.Config = simulate.File("", nil, nil) // replaced by that of each file
	if err := s.scenario.Validate(); err != nil {
		return c.refuse(inFlags(f, err))
	}
	return s.run()
}

// flags returns the flags, which set the fields of s.
func (s *simulation) flags() *flag.FlagSet {
	f := flag.NewFlagSet("simulate", flag.ContinueOnError)
	f.StringVar(&s.scenario.Pipeline, "pipeline", "", "the `name` of the pipeline that the requests go through; not needed if the file has one")
	f.IntVar(&s.scenario.Instances, "instances", 1, "how many `instances` of the program there are")
	f.Uint64Var(&s.scenario.Seed, "seed", 0, "where random numbers begin: the same `number` gives the same result")
	f.StringVar(&s.against, "against", "", "compare with what this `file` would do under the same load")
	f.StringVar(&s.format, "o", "table", "the `format` of the output: table, json, svg or html")
	f.StringVar(&s.out, "out", "", "write the output to this `file`")
	f.Func("expect", "fail unless this `condition` is met, such as 'rejected < 1%'; can be given several times", func(text string) error {
		s.expected = append(s.expected, text)
		return nil
	})
	f.Func("window", "tell the most permits that pass in any window of this `length`; 1s unless given, and can be given several times", func(text string) error {
		d, err := time.ParseDuration(text)
		s.scenario.Windows = append(s.scenario.Windows, d)
		return err
	})
	s.load.add(f)
	s.nameFlags(f)
	return f
}

// fieldFlags are the flags that set fields of the scenario, and how messages call the fields.
var fieldFlags = []struct{ field, flag, name string }{
	{"Load.For", "for", "-for"},
	{"Load.Open.Rate", "rate", "-rate"},
	{"Load.Closed.Clients", "clients", "-clients"},
	{"Load.Closed.Think", "think", "-think"},
	{"Load.Keys", "keys", "the number of -keys"},
	{"Service.Latency", "latency", "-latency"},
	{"Service.Capacity", "capacity", "-capacity"},
	{"Instances", "instances", "-instances"},
	{"Windows", "window", "-window"},
}

// inFlags returns what is wrong with a scenario in the words of the flags that were given.
func inFlags(f *flag.FlagSet, err error) error {
	wrong, ok := errors.AsType[*root.OptionsError](err)
	if !ok {
		return err
	}
	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	problems := make([]string, len(wrong.Fields))
	for i, field := range wrong.Fields {
		name := field.Path
		for _, m := range fieldFlags {
			if given[m.flag] && strings.HasPrefix(field.Path, m.field) {
				name = m.name
			}
		}
		problems[i] = field.Text(name, func(other string) string {
			return strings.Replace(other, "MaxInFlight", "the number of requests that can be in flight", 1)
		})
	}
	return errors.New(strings.Join(problems, "; "))
}

// formats are the formats of the output.
var formats = []string{"table", "json", "svg", "html"}

// check reads the expectations, and returns what is wrong with the flags that are not about the load.
func (s *simulation) check() error {
	if s.out == "-" { // the standard output
		s.out = ""
	}
	standard := 0
	for _, name := range []string{s.file, s.against, s.load.file} {
		if name == "-" {
			standard++
		}
	}
	switch {
	case !slices.Contains(formats, s.format):
		return errors.New("-o must be table, json, svg or html, found " + s.format)
	case standard > 1:
		return errors.New("only one of the files can be -, the standard input")
	}
	for _, text := range s.expected {
		e, err := simulate.ParseExpectation(text)
		if err != nil {
			return err
		}
		if e.NeedsComparison() && s.against == "" {
			return errors.New("-expect '" + text + "' needs -against, the file to compare with")
		}
		if err := s.checkWindow(e); err != nil {
			return err
		}
		s.expectations = append(s.expectations, e)
	}
	return s.checkOut()
}

// checkWindow finds out before a long simulation whether an expectation is about a window that there will not be.
func (s *simulation) checkWindow(e simulate.Expectation) error {
	if e.NeedsComparison() {
		return nil
	}
	windows := s.scenario.Windows
	if windows == nil {
		windows = []time.Duration{time.Second} // the default
	}
	var nothing simulate.Result
	for _, w := range windows {
		nothing.Most = append(nothing.Most, simulate.Most{Window: w})
	}
	err := e.Check(&nothing)
	if _, unmet := errors.AsType[*simulate.UnmetError](err); unmet {
		return nil
	}
	return err
}

// checkOut finds out before a long simulation whether its output could not be written, or would replace what it reads.
func (s *simulation) checkOut() error {
	if s.out == "" {
		return nil
	}
	for _, name := range []string{s.file, s.against, s.load.file, s.load.csv, s.load.accessLog} {
		if name != "" && filepath.Clean(name) == filepath.Clean(s.out) {
			return fmt.Errorf("-out would replace %s, which is read", name)
		}
	}
	if info, err := os.Stat(s.out); err == nil && info.IsDir() {
		return fmt.Errorf("-out must be a file, and %s is a directory", s.out)
	}
	if _, err := os.Stat(filepath.Dir(s.out)); err != nil {
		return fmt.Errorf("-out %s: %w", s.out, err)
	}
	return nil
}

// A report is a [simulate.Result] or a [simulate.Comparison].
type report interface {
	WriteTable(w io.Writer) error
	WriteSVG(w io.Writer) error
	WriteHTML(w io.Writer) error
}

// run simulates the file or both files, and writes the report.
func (s *simulation) run() int {
	var before *simulate.Result
	if s.against != "" {
		var status int
		if before, status = s.simulateFile(s.against); status != exitOK {
			return status
		}
	}
	after, status := s.simulateFile(s.file)
	if status != exitOK {
		return status
	}
	var r report = after
	check := func(e simulate.Expectation) error { return e.Check(after) }
	if before != nil {
		before.Name, after.Name = s.against, s.file
		if a, b := filepath.Base(s.against), filepath.Base(s.file); a != b {
			before.Name, after.Name = a, b
		}
		comparison := simulate.Compare(before, after)
		r = comparison
		check = func(e simulate.Expectation) error { return e.CheckComparison(comparison) }
	}
	if err := s.write(r); err != nil {
		return s.refuse(err)
	}
	for _, e := range s.expectations {
		err := check(e)
		if err == nil {
			continue
		}
		s.refuse(err)
		if _, unmet := errors.AsType[*simulate.UnmetError](err); unmet {
			status = max(status, exitInvalid)
		} else {
			status = exitError
		}
	}
	return status
}

// simulateFile simulates a file.
func (s *simulation) simulateFile(name string) (*simulate.Result, int) {
	content, err := s.read(name)
	if err != nil {
		s.complain("weir: %v\n", err)
		return nil, exitError
	}
	f, status := s.parseContent(name, content)
	if status != exitOK {
		return nil, status
	}
	scenario := s.scenario
	if scenario.Pipeline, err = pipelineOf(f, scenario.Pipeline); err != nil {
		return nil, s.refuse(fmt.Errorf("%s: %w", name, err))
	}
	scenario.Config = simulate.File(name, content, func(s *simulate.Setup, k *reload.Kinds) {
		gatewayconfig.Register(k, gatewayconfig.Simulated(s, scenario.Pipeline))
	})
	r, err := s.runScenario(context.Background(), scenario)
	if err == nil {
		return r, exitOK
	}
	return nil, s.refuse(errors.New(name + ": " + strings.TrimPrefix(err.Error(), "simulate: ")))
}

// refuse prints an error, and returns the exit status.
func (c *command) refuse(err error) int {
	text := strings.Map(func(r rune) rune { // names of a file must not move the cursor of a terminal
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Cf, r) {
			return unicode.ReplacementChar
		}
		return r
	}, err.Error())
	c.complain("weir simulate: %s\n", strings.TrimPrefix(text, "simulate: "))
	return exitError
}

// write writes r to the standard output or the file that the flags name.
func (s *simulation) write(r report) error {
	var b bytes.Buffer
	var err error
	switch s.format {
	case "json":
		encoder := json.NewEncoder(&b)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(r)
	case "svg":
		err = r.WriteSVG(&b)
	case "html":
		err = r.WriteHTML(&b)
	default:
		err = r.WriteTable(&b)
	}
	if err != nil {
		return err
	}
	if s.out != "" {
		return os.WriteFile(s.out, b.Bytes(), 0o666)
	}
	_, _ = s.stdout.Write(b.Bytes()) // run reports the error
	return nil
}

// pipelineOf returns the name of the pipeline to simulate: the one that the flags name, or else the only one. The routes of
// a gateway count as pipelines.
func pipelineOf(f *reload.File, name string) (string, error) {
	all := f.Pipelines()
	if g, ok := reload.SectionOf[gatewayconfig.Gateway](f, gatewayconfig.Field); ok {
		all = append(all, g.RoutePipelines()...)
	}
	switch {
	case len(all) == 0:
		if _, ok := reload.SectionOf[rlsconfig.RLS](f, rlsconfig.Field); ok {
			return "", errors.New("it has no pipelines, and the rules of the rate limit service are not simulated: to try one of its limiters, name the limiter in a pipeline")
		}
		return "", errors.New("it has no pipelines")
	case name == "" && len(all) == 1:
		return all[0], nil
	case name == "":
		return "", errors.New("-pipeline must name one of " + strings.Join(all, ", "))
	case !slices.Contains(all, name):
		return "", errors.New("it has no pipeline " + name + ", must be one of " + strings.Join(all, ", "))
	default:
		return name, nil
	}
}

// loadFlags are the flags of weir simulate about the load, the service and the clients. The simple ones replace what the
// load file says.
type loadFlags struct {
	file           string
	length         time.Duration
	rate           float64
	poisson        bool
	clients        int
	think          time.Duration
	keys           string
	latency        time.Duration
	capacity       int
	csv, accessLog string
	recording      simulate.RecordingOptions
	given          func(name string) bool // whether a flag was given
}

func (l *loadFlags) add(f *flag.FlagSet) {
	f.StringVar(&l.file, "load", "", "the `file` with the load, the service and the clients; the flags below replace parts of it")
	f.DurationVar(&l.length, "for", time.Minute, "how long requests arrive; of a recording all do unless given")
	f.Float64Var(&l.rate, "rate", 0, "how many `requests` a second arrive, however long the answers take")
	f.BoolVar(&l.poisson, "poisson", false, "the requests arrive at random, as those of many users do, and not evenly spaced")
	f.IntVar(&l.clients, "clients", 0, "how many `clients` send requests, each of which waits for the answer first")
	f.DurationVar(&l.think, "think", time.Second, "how long a client waits after an answer: the mean of an exponential distribution")
	f.StringVar(&l.keys, "keys", "", "the `keys` of the requests: uniform:N, zipf:N with a few frequent keys, or abuser:N with one that has half of the requests")
	f.DurationVar(&l.latency, "latency", 0, "how long the service takes: the mean of an exponential distribution")
	f.IntVar(&l.capacity, "capacity", 0, "how many `calls` the service serves at a time, 0 for any number")
	f.StringVar(&l.csv, "csv", "", "replay the requests of this CSV `file` with the columns time, key and cost")
	f.StringVar(&l.accessLog, "access-log", "", "replay the requests of this access log, a `file` of nginx, Envoy, Caddy or Apache")
	f.StringVar(&l.recording.Time, "time-field", "", "the `name` of the column or field with the time of a request")
	f.StringVar(&l.recording.Key, "key-field", "", "the `name` of the column or field with the key of a request")
	f.StringVar(&l.recording.Cost, "cost-field", "", "the `name` of the column or field with the cost of a request")
	f.BoolVar(&l.recording.SkipBad, "skip-bad", false, "leave out lines that are not requests")
	l.given = func(name string) (given bool) {
		f.Visit(func(f *flag.Flag) { given = given || f.Name == name })
		return given
	}
}

// setLoad sets the load, the service and the clients of the scenario.
func (s *simulation) setLoad() int {
	l := &s.load
	if l.file != "" {
		content, err := s.read(l.file)
		if err != nil {
			s.complain("weir: %v\n", err)
			return exitError
		}
		loaded, err := simulate.ParseScenario(l.file, content)
		if err != nil {
			s.complain("%v\n", err)
			if _, ok := errors.AsType[*reload.FileError](err); !ok {
				return exitError
			}
			return exitInvalid
		}
		s.scenario.Load, s.scenario.Service, s.scenario.Clients = loaded.Load, loaded.Service, loaded.Clients
	}
	if err := l.apply(&s.scenario); err != nil {
		return s.refuse(err)
	}
	if r := s.scenario.Load.Recording; r != nil && r.Skipped > 0 {
		s.complain("weir simulate: left out %s, the first because %v\n", count(int(r.Skipped), "line"),
			strings.TrimPrefix(r.FirstSkipped.Error(), "simulate: "))
	}
	return exitOK
}

// apply replaces what the flags give.
func (l *loadFlags) apply(s *simulate.Scenario) error {
	load := &s.Load
	kinds := 0
	for _, kind := range []string{"rate", "clients", "csv", "access-log"} {
		if l.given(kind) {
			kinds++
		}
	}
	if kinds > 1 {
		return errors.New("only one of -rate, -clients, -csv and -access-log can be given")
	}
	if kinds == 1 {
		load.Open, load.Closed = nil, nil
	}
	if l.given("rate") {
		load.Open = &simulate.Open{Rate: simulate.ConstantRate{Rate: l.rate}}
	}
	if l.given("clients") {
		load.Closed = &simulate.Closed{Clients: l.clients, Think: simulate.Exponential{Mean: l.think}}
	}
	if err := l.record(load); err != nil {
		return err
	}
	if load.Open == nil && load.Closed == nil && load.Recording == nil {
		return errors.New("which load? give one of -load, -rate, -clients, -csv and -access-log")
	}
	if l.given("for") || load.For == 0 && load.Recording == nil {
		load.For = l.length
	}
	if l.given("poisson") {
		if load.Open == nil {
			return errors.New("-poisson needs requests that arrive by a rate; give -rate")
		}
		load.Open.Poisson = l.poisson
	}
	if l.given("think") {
		if load.Closed == nil {
			return errors.New("-think needs clients; give -clients")
		}
		load.Closed.Think = simulate.Exponential{Mean: l.think}
	}
	if l.given("latency") {
		s.Service.Latency = simulate.Exponential{Mean: l.latency}
	}
	if l.given("capacity") {
		s.Service.Capacity = l.capacity
	}
	if l.given("keys") {
		keys, err := parseKeys(l.keys)
		load.Keys = keys
		return err
	}
	return nil
}

// record sets the recording, if there is one.
func (l *loadFlags) record(load *simulate.Load) (err error) {
	switch {
	case l.csv != "":
		load.Recording, err = simulate.ReadCSV(l.csv, &l.recording)
	case l.accessLog != "":
		load.Recording, err = simulate.ReadAccessLog(l.accessLog, &l.recording)
	default:
		for _, name := range []string{"time-field", "key-field", "cost-field", "skip-bad"} {
			if l.given(name) {
				return fmt.Errorf("-%s needs -csv or -access-log", name)
			}
		}
	}
	if load.Recording != nil {
		load.Keys, load.Cost = nil, nil // the requests have their own
		if l.given("keys") {
			return errors.New("the requests of a recording have keys; -keys cannot replace them")
		}
		load.For = 0
	}
	return err
}

// parseKeys reads the flag -keys.
func parseKeys(text string) (simulate.Keys, error) {
	kind, number, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(number)
	var keys simulate.Keys
	switch {
	case err != nil:
	case kind == "uniform":
		keys = simulate.UniformKeys{Count: n}
	case kind == "zipf":
		keys = simulate.ZipfKeys{Count: n, Exponent: 1}
	case kind == "abuser":
		keys = simulate.AbuserKeys{Share: 0.5, Others: n}
	}
	if keys == nil {
		return nil, fmt.Errorf("-keys must be uniform:N, zipf:N or abuser:N with a number N of keys, found %q", text)
	}
	return keys, nil
}
