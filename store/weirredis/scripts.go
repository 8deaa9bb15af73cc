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

// readBucket are statements that read the state of a bucket, as take.lua describes it, and bring it up to date. They
// answer if the state is not of the definition of the call.
const readBucket = `local stored=call('GET',KEYS[1])
local line_time,missing,floor,refunded,elapsed=now-(now-anchor)%period,0,0,0,0
if stored then
  local stored_version,written,stored_missing=unpack('<ddd',stored)
  if stored_version~=version then
    if stored_version>version then return pack('<dddB',stored_version,now,0,{outdated_definition}) end
    return pack('<dddB',version,now,0,{outdated_state})..stored
  end
  missing=stored_missing
  if #stored>plain then floor,refunded=unpack('<dd',stored,plain+1) end
  elapsed=line_time-(written-(written-anchor)%period)
  if elapsed>0 then
    local brought=elapsed/period*refill
    missing=missing-brought
    floor=floor-brought
    if floor<0 then floor=0 end
    if missing<0 then
      refunded=refunded+missing
      if refunded<0 then refunded=0 end
      missing=0
    end
  end
end`

// bucketDeleteAt are statements that set when the state of a bucket can be forgotten.
const bucketDeleteAt = `local left=missing+refunded-1
local delete_at=line_time+((left-left%refill)/refill+1)*period
if delete_at>9e18 then delete_at=9e18 end`

// A script is sent by its hash, which the server knows after the source was sent once.
type script struct {
	source, sha any // strings
}

type scripts struct {
	take, requests, takeSliding, requestsSliding, takeCalendar, requestsCalendar, replace script
	acquire, renew, release                                                               script
	load, define, copy                                                                    script
}

func newScripts(c clock) *scripts {
	return &scripts{
		take: c.script("take"), requests: c.script("requests"),
		takeSliding: c.script("take_sliding"), requestsSliding: c.script("requests_sliding"),
		takeCalendar: c.calendar("take_sliding"), requestsCalendar: c.calendar("requests_sliding"),
		replace: c.script("replace"),
		acquire: c.script("acquire"), renew: c.script("renew"), release: c.script("release"),
		load: c.script("load"), define: c.script("define"), copy: c.script("copy"),
	}
}

// The scripts of a sliding window decide by a calendar, too, with these statements in place of some of theirs. The schedule is that
// of one window, and segments is its line. They answer if the time is not in it. A window that has begun does not end by a step into
// the one before: see rate.Schedule.AdvanceTo. Another instance can think that it has not, so the state is kept for twice as long as
// a window, and more because some are longer than others.
var calendarStatements = []string{
	"{check_window}", `if line~=segments then return pack('<dddB',version,now,0,{other_window}) end
segments,kept=1,2.125`,
	"{read_segments}", `local pos=#stored-15
  lines=math.min(line-unpack('<d',stored,pos),0)
  if lines==-1 then line,lines,schedule=line+1,0,string.sub(stored,25,-17) end`,
}

// slidingStatements read where the segments of a state begin, and how many lines ago the clock has stepped back.
var slidingStatements = []string{
	"{check_window}", "",
	"{read_segments}", `local pos=25+#schedule
  lines=(line_time-(written-(written-anchor)%period))/period`,
}

func (c clock) calendar(name string) script { return c.with(calendarStatements, name) }

func (c clock) script(name string) script { return c.with(slidingStatements, name) }

func (c clock) with(statements []string, name string) script {
	source, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // unreachable: the file is embedded
	}
	text := strings.NewReplacer(statements...).Replace(string(source))
	text = strings.NewReplacer("{check_definition}", definitionCheck, "{read_bucket}", readBucket, "{bucket_delete_at}", bucketDeleteAt).Replace(text)
	text = strings.NewReplacer(
		"{clock}", c.now, "{expiry}", c.expiry,
		"{outdated_definition}", strconv.Itoa(answerOutdatedDefinition), "{granted}", strconv.Itoa(answerGranted),
		"{rejected}", strconv.Itoa(answerRejected), "{outdated_state}", strconv.Itoa(answerOutdatedState),
		"{other_window}", strconv.Itoa(answerOtherWindow),
	).Replace(text)
	sum := sha1.Sum([]byte(text))
	return script{source: text, sha: hex.EncodeToString(sum[:])}
}
