package weirredis

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed lua/*.lua
var sources embed.FS

// A clock is how scripts get the time. Tests have another one.
type clock struct {
	now    string // statements that set the local variable now, in µs since 1970
	expiry string // an expression for PXAT: when to delete what is full at full (µs)
}

// serverClock deletes a key up to a millisecond later than possible, and never earlier.
var serverClock = clock{
	now:    "local t=redis.call('TIME')\nlocal now=t[1]*1000000+t[2]",
	expiry: "string.format('%d',full/1000+1)",
}

// A script is known to the server by its hash after it was sent once.
type script struct {
	source, sha any // strings
}

type scripts struct {
	take, requests, takeSliding, requestsSliding, replace script
	acquire, renew, release                               script
	load, define, copy                                    script
}

func newScripts(c clock) *scripts {
	return &scripts{
		take: c.script("take"), requests: c.script("requests"),
		takeSliding: c.script("take_sliding"), requestsSliding: c.script("requests_sliding"),
		replace: c.script("replace"),
		acquire: c.script("acquire"), renew: c.script("renew"), release: c.script("release"),
		load: c.script("load"), define: c.script("define"), copy: c.script("copy"),
	}
}

func (c clock) script(name string) script {
	source, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // unreachable: the file is embedded
	}
	text := strings.NewReplacer("{clock}", c.now, "{expiry}", c.expiry).Replace(withoutComments(string(source)))
	sum := sha1.Sum([]byte(text))
	return script{source: text, sha: hex.EncodeToString(sum[:])}
}

// withoutComments shortens what is sent to a server that has lost its scripts.
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
