package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/simulate"
)

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
func (c *command) setLoad(s *simulation) int {
	l := &s.load
	if l.file != "" {
		content, err := c.read(l.file)
		if err != nil {
			c.complain("weir: %v\n", err)
			return exitError
		}
		loaded, err := simulate.ParseScenario(l.file, content)
		if err != nil {
			c.complain("%v\n", err)
			if _, ok := errors.AsType[*reload.FileError](err); !ok {
				return exitError
			}
			return exitInvalid
		}
		s.scenario.Load, s.scenario.Service, s.scenario.Clients = loaded.Load, loaded.Service, loaded.Clients
	}
	if err := l.apply(&s.scenario); err != nil {
		return c.refuse(err)
	}
	if r := s.scenario.Load.Recording; r != nil && r.Skipped > 0 {
		c.complain("weir simulate: left out %s, the first because %v\n", count(int(r.Skipped), "line"),
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
