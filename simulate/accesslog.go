package simulate

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ReadAccessLog reads a recording of an access log, which can be compressed with gzip: of nginx, Envoy or Caddy as JSON
// with an object a line, or in the common or combined log format of nginx and Apache. o can be nil.
//
// The fields of JSON are named by paths such as "request.headers.X-Api-Key"; of an array, the first element counts. By
// default the time is in the first of the fields ts (Caddy), start_time (Envoy), msec, time_iso8601, time_local (nginx),
// @timestamp, timestamp or time, and the key in the first of request.client_ip, request.remote_ip (Caddy), remote_addr
// (nginx), downstream_remote_address (Envoy), client_ip or remote_ip. The cost is 1 by default.
//
// The fields of the combined format are remote_addr, which is the key by default, remote_user, time_local, request,
// status, body_bytes_sent, http_referer and http_user_agent.
//
// A request that has no value for its key has an empty one. An address is taken without its port. Times are like those
// of [ReadCSV]. They are when requests arrived if the log says so, as start_time does; else they are when requests ended.
//
// ReadAccessLog reads the whole file to check it, and each simulation reads it again: the requests are not kept in
// memory.
func ReadAccessLog(name string, o *RecordingOptions) (*Recording, error) {
	f := &recordingFile{name: name, parser: newLogParser}
	if o != nil {
		f.options = *o
	}
	return f.recording()
}

// The fields of JSON that have the time and the key if the options do not say so, the most likely ones first.
var (
	timeFields = []string{"ts", "start_time", "msec", "time_iso8601", "time_local", "@timestamp", "timestamp", "time"}
	keyFields  = []string{
		"request.client_ip", "request.remote_ip", "remote_addr", "downstream_remote_address", "client_ip", "remote_ip",
	}
)

// A logParser is the [lineParser] of access logs. It decides for each line whether it is JSON.
type logParser struct {
	options *RecordingOptions
	json    jsonFields
	times   []int // the indexes in json.names of the fields that can have the time
	key     []int // of the field that the options name, if they do
	keys    []int // of the fields that can have the key otherwise; a line without any of them is not a request
	cost    []int // of the field that the options name, if they do

	combined        combinedLine
	hasKey, hasCost bool // whether a line had them
}

func newLogParser(o *RecordingOptions) lineParser {
	l := &logParser{options: o}
	l.times = l.json.add(timeFields...)
	if o.Time != "" {
		l.times = l.json.add(o.Time)
	}
	if o.Key != "" {
		l.key = l.json.add(o.Key)
	}
	l.keys = l.json.add(keyFields...)
	if o.Cost != "" {
		l.cost = l.json.add(o.Cost)
	}
	return l
}

func (l *logParser) parse(line []byte) (at moment, key string, cost int, ok bool, err error) {
	line = bytes.TrimSpace(line)
	if line[0] == '{' {
		return l.parseJSON(line)
	}
	return l.parseCombined(string(line))
}

func (l *logParser) parseJSON(line []byte) (at moment, key string, cost int, ok bool, err error) {
	if err := l.json.parse(line); err != nil {
		return at, key, cost, ok, err
	}
	text, found := l.json.first(l.times)
	if !found {
		return at, key, cost, ok, l.noField("time", l.options.Time, timeFields)
	}
	if at, err = parseMoment(text); err != nil {
		return at, key, cost, ok, err
	}
	key, found = l.json.first(l.key)
	l.hasKey = l.hasKey || found
	if !found {
		other, isRequest := l.json.first(l.keys)
		switch {
		case !isRequest:
			return at, key, cost, ok, l.noField("key", l.options.Key, keyFields)
		case len(l.key) == 0:
			key, l.hasKey = other, true
		}
	}
	text, found = l.json.first(l.cost)
	l.hasCost = l.hasCost || found
	cost, err = parseCost(text)
	return at, keyOf(key), cost, true, err
}

// noField returns the error that a line does not have a field. If the options do not name it, it is one of the usual.
func (l *logParser) noField(what, name string, usual []string) error {
	if name != "" {
		return badLineError("the line has no field " + shown(name))
	}
	return badLineError("the line has no field for the " + what + ", which would be one of " + strings.Join(usual, ", "))
}

func (l *logParser) parseCombined(line string) (at moment, key string, cost int, ok bool, err error) {
	if err := l.combined.parse(line); err != nil {
		return at, key, cost, ok, err
	}
	values := [3]string{}
	for i, name := range [3]string{cmp.Or(l.options.Time, "time_local"), cmp.Or(l.options.Key, "remote_addr"), l.options.Cost} {
		if name == "" {
			continue
		}
		field := slices.Index(combinedFields[:], name)
		if field < 0 {
			return at, key, cost, ok, badLineError("the combined log format has no field " + shown(name) + ", it has " + strings.Join(combinedFields[:], ", "))
		}
		values[i] = l.combined.values[field]
	}
	l.hasKey, l.hasCost = true, true
	if at, err = parseMoment(values[0]); err != nil {
		return at, key, cost, ok, err
	}
	cost, err = parseCost(values[2])
	return at, keyOf(values[1]), cost, true, err
}

// finish returns an error if no line had a field that the options name.
func (l *logParser) finish() error {
	switch {
	case !l.hasKey && l.options.Key != "":
		return fmt.Errorf("no line has the field %q for the key", l.options.Key)
	case !l.hasCost && l.options.Cost != "":
		return fmt.Errorf("no line has the field %q for the cost", l.options.Cost)
	}
	return nil
}

// keyOf returns the key for a value: without the port of an address, and empty for the "-" that logs have for nothing.
func keyOf(value string) string {
	if value == "-" {
		return ""
	}
	if strings.IndexByte(value, ':') > 0 {
		if a, err := netip.ParseAddrPort(value); err == nil {
			return a.Addr().String()
		}
	}
	return value
}
