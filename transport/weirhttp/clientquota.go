package weirhttp

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Quota is what a response says of one of the limits of the server.
type Quota struct {
	// Name tells the quotas of an account apart: the policy, the resource, or "requests" and "tokens". It can be "".
	Name string
	// Limit is how much there is of it. If 0, it is not said.
	Limit int64
	// Remaining is how much is left; below 0 if it is not said.
	Remaining int64
	// Window is how long a window is. If 0, it is not said.
	Window time.Duration
	// Reset is how long it takes until all of it is there again. If 0, it is not said.
	Reset time.Duration
	// Refills says that the quota comes back bit by bit, as that of a bucket does, and not all at once.
	Refills bool
}

// QuotasOf returns what the fields of a response say of quotas. It understands
//
//   - RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers from its eighth version to the eleventh, and RateLimit of
//     the seventh;
//   - RateLimit-Limit, -Remaining and -Reset of the versions before, and X-RateLimit-*, X-Rate-Limit-* with a Reset in seconds, or a
//     time in seconds or milliseconds since 1970, or Reset-After in seconds; the name is that of X-RateLimit-Resource;
//   - the pairs of OpenAI: X-Ratelimit-Limit-Requests, -Tokens, and so on, with a Reset such as 6m0s;
//   - those of Anthropic: Anthropic-Ratelimit-Requests-Limit, -Tokens, -Input-Tokens, -Output-Tokens, and so on, with a Reset such as
//     2026-11-29T12:00:00Z.
//
// A field that is malformed is as if it were not there.
func QuotasOf(resp *http.Response) []Quota {
	h := resp.Header
	if quotas := draftQuotas(h); len(quotas) > 0 {
		return quotas
	}
	now := time.Now()
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	var quotas []Quota
	add := func(name, limit, remaining, reset string, refills bool) {
		q := Quota{Name: name, Remaining: -1, Refills: refills}
		q.Limit, _ = amount(first(h.Get(limit)))
		if n, ok := amount(h.Get(remaining)); ok {
			q.Remaining = n
		}
		q.Reset = untilReset(h.Get(reset), now)
		if q.Limit > 0 || q.Remaining >= 0 {
			quotas = append(quotas, q)
		}
	}
	for _, name := range [...]string{"Requests", "Tokens"} {
		add(strings.ToLower(name), "X-Ratelimit-Limit-"+name, "X-Ratelimit-Remaining-"+name, "X-Ratelimit-Reset-"+name, true)
	}
	for _, name := range [...]string{"Requests", "Tokens", "Input-Tokens", "Output-Tokens"} {
		p := "Anthropic-Ratelimit-" + name
		add(strings.ToLower(name), p+"-Limit", p+"-Remaining", p+"-Reset", true)
	}
	for _, p := range [...]string{"Ratelimit", "X-Ratelimit", "X-Rate-Limit"} {
		if len(quotas) > 0 {
			break
		}
		reset := p + "-Reset"
		if after := h.Get(p + "-Reset-After"); after != "" {
			reset = p + "-Reset-After"
		}
		add(h.Get(p+"-Resource"), p+"-Limit", p+"-Remaining", reset, false)
	}
	return quotas
}

// first returns the first member of a list.
func first(list string) string {
	text, _, _ := strings.Cut(list, ",")
	return text
}

// mostAmount bounds what is believed; larger numbers are malformed. So is a structured field's.
const mostAmount = 999_999_999_999_999

// amount returns a number of permits.
func amount(text string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n > mostAmount {
		return 0, false
	}
	return n, true
}

// untilReset returns how long it takes until a time that is written as one of the forms of Reset; 0 if it is not there, or malformed.
func untilReset(text string, now time.Time) time.Duration {
	text = strings.TrimSpace(text)
	var d time.Duration
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		switch {
		case !(n >= 0 && n <= mostAmount):
			return 0
		case n >= 1e11: // milliseconds since 1970
			d = time.UnixMilli(int64(n)).Sub(now)
		case n >= 5e8: // seconds since 1970, and not 15 years
			d = time.UnixMilli(int64(n * 1000)).Sub(now)
		default:
			d = time.Duration(min(n*float64(time.Second), math.MaxInt64/2))
		}
	} else if t, err := time.Parse(time.RFC3339, text); err == nil {
		d = t.Sub(now)
	} else if d, err = time.ParseDuration(text); err != nil {
		return 0
	}
	return max(d, 0)
}

// draftQuotas returns what RateLimit and RateLimit-Policy say.
func draftQuotas(h http.Header) []Quota {
	const all = "Ratelimit"
	if q, ok := seventhDraft(h.Get(all)); ok {
		return []Quota{q}
	}
	var quotas []Quota
	byName := func(name string) *Quota {
		for i := range quotas {
			if quotas[i].Name == name {
				return &quotas[i]
			}
		}
		quotas = append(quotas, Quota{Name: name, Remaining: -1})
		return &quotas[len(quotas)-1]
	}
	for _, item := range items(h.Values("Ratelimit-Policy")) {
		if n, ok := amount(item.parameters["q"]); ok {
			q := byName(item.name)
			q.Limit = n
			if w, ok := amount(item.parameters["w"]); ok {
				q.Window = seconds(w)
			}
		}
	}
	for _, item := range items(h.Values(all)) {
		if n, ok := amount(item.parameters["r"]); ok {
			q := byName(item.name)
			q.Remaining = n
			if t, ok := amount(item.parameters["t"]); ok {
				q.Reset = seconds(t)
			}
		}
	}
	return quotas
}

func seconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
}

// seventhDraft reads a field such as limit=100, remaining=50, reset=30.
func seventhDraft(text string) (q Quota, ok bool) {
	q.Remaining = -1
	for member := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(member), "=")
		n, valid := amount(value)
		if !valid {
			continue
		}
		switch name {
		case "limit":
			q.Limit = n
		case "remaining":
			q.Remaining, ok = n, true
		case "reset":
			q.Reset = seconds(n)
		}
	}
	return q, ok
}

// An item is a member of a list of structured fields, RFC 9651: a string with parameters.
type item struct {
	name       string
	parameters map[string]string
}

// items reads lists of strings. A list that is none is as if it were not there.
func items(lists []string) (all []item) {
	for _, list := range lists {
		var read []item
		for rest := list; ; {
			i, after, ok := cutItem(rest)
			if !ok {
				read = nil
				break
			}
			read = append(read, i)
			if rest = strings.TrimSpace(after); rest == "" {
				break
			}
			if !strings.HasPrefix(rest, ",") {
				read = nil
				break
			}
			rest = rest[1:]
		}
		all = append(all, read...)
	}
	return all
}

// cutItem reads an item, and returns what comes after it.
func cutItem(text string) (i item, after string, ok bool) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, `"`) {
		return i, "", false
	}
	var name strings.Builder
	at := 1
	for ; at < len(text) && text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
		if at < len(text) {
			name.WriteByte(text[at])
		}
	}
	if at >= len(text) {
		return i, "", false
	}
	i = item{name: name.String(), parameters: map[string]string{}}
	for text = text[at+1:]; strings.HasPrefix(text, ";"); {
		end := strings.IndexAny(text[1:], ";,")
		if quote := strings.IndexByte(text[1:], '"'); quote >= 0 && (end < 0 || quote < end) { // a string, or a pk in bytes
			closing := strings.IndexByte(text[quote+2:], '"')
			if closing < 0 {
				return i, "", false
			}
			end = strings.IndexAny(text[quote+2+closing:], ";,")
			if end >= 0 {
				end += quote + 1 + closing
			}
		}
		parameter := text[1:]
		if end >= 0 {
			parameter, text = text[1:end+1], text[end+1:]
		} else {
			text = ""
		}
		key, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		i.parameters[key] = strings.TrimSpace(value)
	}
	return i, text, true
}
