package gatewayconfig

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// A Pattern is the match of a route in its parts.
type Pattern struct {
	Method string // "": any
	Host   string // "": any
	Path   string // with the wildcards
}

// Pattern returns the parts of the route's match.
func (r Route) Pattern() Pattern {
	method, rest, found := strings.Cut(r.Match, " ")
	if !found {
		method, rest = "", r.Match
	}
	rest = strings.TrimLeft(rest, " \t")
	i := strings.IndexByte(rest, '/')
	if i < 0 {
		return Pattern{method, rest, ""}
	}
	return Pattern{method, rest[:i], rest[i:]}
}

// Wildcards returns the names of the wildcards in the path.
func (p Pattern) Wildcards() (names []string) {
	for _, m := range wildcard.FindAllStringSubmatch(p.Path, -1) {
		names = append(names, m[1])
	}
	return names
}

var wildcard = regexp.MustCompile(`\{([\p{L}_][\p{L}\p{N}_]*)(?:\.\.\.)?\}`)

// handle registers a pattern, and returns what is wrong with it, or with which other pattern it conflicts.
func handle(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%s", patternProblem(fmt.Sprint(reason)))
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

var (
	conflict = regexp.MustCompile(`(?s)^pattern ".*" \(registered at .*\) conflicts with pattern (".*") \(registered at .*\):\n(.*)$`)
	parsing  = regexp.MustCompile(`(?s)^parsing ".*": (?:at offset \d+: )?(.*)$`)
)

// patternProblem returns the message of package net/http without the places in this program.
func patternProblem(message string) string {
	if m := conflict.FindStringSubmatch(message); m != nil {
		other, err := strconv.Unquote(m[1])
		if err != nil {
			other = m[1]
		}
		return fmt.Sprintf("it conflicts with the route %q: %s", other, strings.Join(strings.Fields(m[2]), " "))
	}
	if m := parsing.FindStringSubmatch(message); m != nil {
		return m[1]
	}
	return strings.TrimPrefix(message, "http: ")
}

// isToken reports whether the text is a token of HTTP, as the name of a header is.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !isLetterOrDigit(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// isIdentifier reports whether the text can be the name of a wildcard.
func isIdentifier(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !isLetterOrDigit(r) && r != '_' })
}

func isLetterOrDigit(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}
