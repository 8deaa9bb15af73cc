package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// oddKeys returns keys that a store could confuse with others, or truncate. A key can be any bytes.
func oddKeys() []string {
	long := strings.Repeat("k", 255)
	return []string{
		"", "k", "K", " k", "k ", "k\x00", "k\x00l", "\x00", "\xff", "\xfe", "\xff\xfe", "\uFFFD", "k\xc3", "ké", "ke\u0301",
		"{", "}", "{}", "{k}", "{k}:l", ":", "::", "k:l", "k:", ":k", "*", "?", "[k]", "%", "%00", "\\", "\\x00", "\\000", "'", "''", "\"", "`", "$1",
		"-- k", ";", "\n", "\r\n", "\t", "k,l", "/k", "k/l", "null", "NULL", "0", "-1", "k|l", "\x1b", "\x7f", "日本", "😀", long + "1", long + "2", long[:254],
		strings.Repeat("\x00", 256), strings.Repeat("\xff", 256),
	}
}

// oddNames returns unusual names of limiters.
func oddNames() []string {
	return []string{
		"a", "a:b", "a:", "a:{b}", "{a}", "{a", "a}", "a b", "A", "a'b", `a"b`, "a%sb", "a_b", `a\b`, "a/b", "a*", "é", "日本", "a$1", "a,b", "a-b", "a.b",
		strings.Repeat("a", 128),
	}
}

var keyCases = []testCase{
	{name: "keys of any bytes are distinct", run: func(p *probe) {
		for d := range p.timed(1000) {
			for range 2 {
				var batches []*backend.Batch
				for i, key := range oddKeys() {
					batches = append(batches, batchOf(d, key, take(int64(i)+1)))
				}
				p.decide(batches...)
			}
		}
	}},
	{name: "names are distinct from other names and from keys", run: func(p *probe) {
		var definitions []*backend.Definition
		for _, name := range oddNames() {
			definitions = append(definitions, p.defineNamed(name, slowLimits(1000)))
		}
		for range 2 {
			var batches []*backend.Batch
			for i, d := range definitions {
				for j, key := range []string{"", "b", "b:c", ":b", "{b}", "}b"} {
					batches = append(batches, batchOf(d, key, take(int64(6*i+j+1))))
				}
			}
			p.decide(batches...)
		}
	}},
	{name: "each name has a definition of its own", run: func(p *probe) {
		for i, name := range oddNames() {
			p.defineNamed(name, slowLimits(int64(i)+1))
		}
		for i, name := range oddNames() {
			d := p.loads(p.b, p.name+name)
			p.check(d != nil && d.Permits == int64(i)+1, fmt.Sprintf("%q is defined with %d permits", name, i+1), d)
		}
	}},
	{name: "leases of keys of any bytes are distinct", run: func(p *probe) {
		d := p.define(concurrency(1))
		var first, again, renewed []*backend.LeaseRequest
		for i, key := range oddKeys() {
			first = append(first, leaseRequest(d, key, fmt.Sprint(p.name, "-", i), 1, time.Minute))
			again = append(again, leaseRequest(d, key, fmt.Sprint(p.name, "+", i), 1, time.Minute))
		}
		p.acquires(p.b, first...)
		p.acquires(p.b, again...)
		for i := range first {
			p.check(first[i].OK && !again[i].OK, fmt.Sprintf("key %q is held once", first[i].Key), []bool{first[i].OK, again[i].OK})
			renewed = append(renewed, sameLease(first[i]))
		}
		p.renews(p.b, renewed...)
		p.releases(p.b, renewed...)
		for _, r := range renewed {
			p.check(r.OK, fmt.Sprintf("the lease of key %q was there to be released", r.Key), r.OK)
		}
	}},
}
