package weirredis

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strconv"
	"strings"
)

//go:embed lua/*.lua
var sources embed.FS

// A clock is how scripts get the time. Tests have another one.
type clock struct {
	now    string // statements that set the local variable now, in µs since 1970
	expiry string // an expression that converts the local variable delete_at (µs) to the key's expiry (ms)
}

// serverClock is the clock of the server. Keys expire up to a millisecond after delete_at, and never earlier.
var serverClock = clock{
	now:    "local t=redis.call('TIME')\nlocal now=t[1]*1000000+t[2]",
	expiry: "string.format('%d',delete_at/1000+1)",
}

// definitionCheck are statements that answer if the definition of the call is not the newest.
const definitionCheck = `local defined=call('GETRANGE',KEYS[2],0,7)
local newest=defined~='' and unpack('<d',defined) or 0
if newest>version then return pack('<dddB',newest,now,0,{outdated_definition}) end`

// A script is sent by its hash, which the server knows after the source was sent once.
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
	text := strings.ReplaceAll(string(source), "{check_definition}", definitionCheck)
	text = strings.NewReplacer(
		"{clock}", c.now, "{expiry}", c.expiry,
		"{outdated_definition}", strconv.Itoa(answerOutdatedDefinition), "{granted}", strconv.Itoa(answerGranted),
		"{rejected}", strconv.Itoa(answerRejected), "{outdated_state}", strconv.Itoa(answerOutdatedState),
	).Replace(text)
	sum := sha1.Sum([]byte(text))
	return script{source: text, sha: hex.EncodeToString(sum[:])}
}
