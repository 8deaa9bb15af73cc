package weirredis

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed lua/*.lua
var sources embed.FS

// A clock is how scripts learn the time. Tests have another.
type clock struct {
	now    string // statements that set the local variable now, in µs since 1970
	expiry string // an expression: when to forget what is not needed after full (µs), for PXAT
}

// serverClock: a key is forgotten up to a millisecond later than it could be, and never before.
var serverClock = clock{
	now:    "local t=redis.call('TIME')\nlocal now=t[1]*1000000+t[2]",
	expiry: "string.format('%d',full/1000+1)",
}

// A script is known to the server by its hash, after it was sent once.
type script struct {
	source, sha any // strings; in the form in which they are arguments
}

// scripts are all there are.
type scripts struct {
	take, asks, takeSliding, asksSliding, replace script
	hold, renew, release                          script
	load, define, copy                            script
}

func newScripts(c clock) *scripts {
	return &scripts{
		take: c.script("take"), asks: c.script("asks"),
		takeSliding: c.script("take_sliding"), asksSliding: c.script("asks_sliding"),
		replace: c.script("replace"),
		hold:    c.script("hold"), renew: c.script("renew"), release: c.script("release"),
		load: c.script("load"), define: c.script("define"), copy: c.script("copy"),
	}
}

func (c clock) script(name string) script {
	source, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // it is in this package: a test would have seen it
	}
	text := strings.NewReplacer("{clock}", c.now, "{expiry}", c.expiry).Replace(withoutComments(string(source)))
	sum := sha1.Sum([]byte(text))
	return script{source: text, sha: hex.EncodeToString(sum[:])}
}

// withoutComments makes what is sent to a server that has lost its scripts shorter.
func withoutComments(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	return b.String()
}
