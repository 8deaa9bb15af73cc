package voice

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
)

// A ban is one or more words, in lower case, and what to write in their place.
type ban struct{ words, instead string }

// banned are the words, in lower case, each with what to write instead.
var banned = []ban{
	{`nobody`, `name who or what is meant, as in "no caller"`},
	{`somebody`, `name who is meant, as in "a caller"`},
	{`whoever`, `name who is meant, as in "the caller"`},
	{`who asks`, `"the caller"`},
	{`those that`, `repeat the noun, as in "the limiters that"`},
	{`anew`, `"again"`},
	{`for ever`, `"forever"`},
	{`besides`, `"also", or "other than"`},
	{`reckon`, `"compute" or "count"`},
	{`reckons`, `"computes" or "counts"`},
	{`reckoned`, `"computed" or "counted"`},
	{`reckoning`, `"computing" or "counting"`},
	{`of no account`, `"is ignored"`},
	{`of no use`, `"is ignored", or what it cannot do`},
	{`as ever`, `"as before"`},
	{`is the matter of`, `"is up to"`},
	{`may well`, `"can"`},
	{`tells whether`, `"reports whether"`},
	{`tell whether`, `"report whether"`},
	{`(null)`, `nothing: leave out what is not known`},
	{`lest`, `"so that … not"`},
}

// byFirstWord has the indexes of banned by the first of their words.
var byFirstWord = func() map[string][]int {
	m := map[string][]int{}
	for i, b := range banned {
		first, _, _ := strings.Cut(b.words, " ")
		m[first] = append(m[first], i)
	}
	return m
}()

var (
	// quotedPattern matches one to four words in quotation marks, as a rule about words has them.
	quotedPattern = regexp.MustCompile(`\\?["“]\(?\w+(?:\s+\w+){0,3}\)?\\?["”]`)
	// codePattern matches a code span, which can go on in the next line but not in the next paragraph.
	codePattern = regexp.MustCompile("`(?:[^`\n]|\n[^`\n])+`")
)

// A finding is one banned word.
type finding struct {
	file    string
	line    int
	words   string
	instead string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s: write %s", f.file, f.line, f.words, f.instead)
}

// find returns the banned words in prose, except in code spans and where they are quoted by themselves.
func find(prose []byte) []finding {
	if len(scan(prose)) == 0 {
		return nil // most files
	}
	prose = codePattern.ReplaceAllFunc(prose, blank)
	prose = quotedPattern.ReplaceAllFunc(prose, func(quoted []byte) []byte {
		text := strings.Trim(strings.ToLower(string(quoted)), `\"“”`)
		if slices.ContainsFunc(banned, func(b ban) bool { return b.words == strings.Join(strings.Fields(text), " ") }) {
			return blank(quoted)
		}
		return quoted
	})
	return scan(prose)
}

// scan returns the banned words in prose. It looks up word by word, because a regular expression of all banned words
// takes seconds for the repository.
func scan(prose []byte) []finding {
	prose = bytes.ToLower(prose)
	var found []finding
	for i := 0; i < len(prose); {
		end := i
		if bytes.HasPrefix(prose[i:], []byte(`(null)`)) { // the only banned word with brackets
			end = i + len(`(null)`)
		}
		for end < len(prose) && isWordByte(prose[end]) {
			end++
		}
		for _, b := range byFirstWord[string(prose[i:end])] {
			if hasWords(prose[i:], banned[b].words) {
				line := 1 + bytes.Count(prose[:i], []byte("\n"))
				found = append(found, finding{line: line, words: banned[b].words, instead: banned[b].instead})
			}
		}
		i = max(end, i+1)
	}
	return found
}

// hasWords reports whether prose begins with the words. There can be line breaks between them.
func hasWords(prose []byte, words string) bool {
	for word := range strings.FieldsSeq(words) {
		prose = bytes.TrimLeft(prose, " \t\n")
		if !bytes.HasPrefix(prose, []byte(word)) {
			return false
		}
		if prose = prose[len(word):]; len(prose) > 0 && isWordByte(prose[0]) {
			return false
		}
	}
	return true
}

// isWordByte reports whether b, in lower case, belongs to a word.
func isWordByte(b byte) bool {
	return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || b == '_'
}

// blank returns text with every byte replaced by 0, except line breaks.
func blank(text []byte) []byte {
	blanked := make([]byte, len(text))
	for i, b := range text {
		if b == '\n' {
			blanked[i] = b
		}
	}
	return blanked
}

// allProse returns the whole text as prose. What stands between the fences of a code block is prose too: its comments
// are read with the page.
func allProse(_ string, source []byte) []byte {
	return bytes.ReplaceAll(source, []byte("```"), []byte("   "))
}

// goProse returns a Go file with everything blanked that is neither a comment nor the text of a string. A string of one
// word is a name, and in a test file, strings that are raw or have no space are the test's data.
func goProse(file string, source []byte) []byte {
	prose := blank(source)
	fset := token.NewFileSet()
	var s scanner.Scanner
	s.Init(fset.AddFile(file, -1, len(source)), source, nil, scanner.ScanComments)
	var last [2]struct { // the two tokens before this one
		tok token.Token
		end int
	}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return prose
		}
		start := fset.Position(pos).Offset
		end := start + len(text)
		switch tok {
		case token.COMMENT:
			copy(prose[start:end], source[start:end])
			copy(prose[start:], "  ")
			// Indentation is no code: a phrase can go on in the next line of the comment.
			for i := start - 1; i >= 0 && (source[i] == ' ' || source[i] == '\t'); i-- {
				prose[i] = ' '
			}
		case token.STRING:
			joined := last[0].tok == token.STRING && last[1].tok == token.ADD // "a phrase can go" + "on here"
			if !joined && isData(text, strings.HasSuffix(file, "_test.go")) {
				break
			}
			copy(prose[start+1:end-1], source[start+1:end-1])
			if joined {
				between := prose[last[0].end-1 : start+1]
				copy(between, bytes.ReplaceAll(blank(between), []byte{0}, []byte(" ")))
			}
		}
		last[0], last[1] = last[1], struct {
			tok token.Token
			end int
		}{tok, end}
	}
}

// isData reports whether a string literal is a name or a test's data, and not a text.
func isData(literal string, test bool) bool {
	if test && (literal[0] == '`' || !strings.Contains(literal, " ")) {
		return true
	}
	return !strings.ContainsFunc(literal[1:len(literal)-1], func(r rune) bool { return !unicode.IsLetter(r) })
}

func TestFind(t *testing.T) {
	source := strings.NewReplacer("'", "`", "¶", "\n")
	tests := []struct {
		name, file, source string // in source, ' is a backquote and ¶ a line break
		want               []string
	}{
		{"words", "a.md", `Nobody knows.¶Lest it fail, write anew.`, []string{`1 nobody`, `2 lest`, `2 anew`}},
		{"parts of words", "a.md", `the latest reckoner, renewed, as everyone does`, nil},
		{"a phrase over two lines", "a.md", `it is of¶no account`, []string{`1 of no account`}},
		{"brackets", "a.md", `x/(null)/y`, []string{`1 (null)`}},
		{"a code span", "a.md", `the user 'nobody' and 'it may¶well'`, nil},
		{"an open code span ends with the paragraph", "a.md", `a ' here¶¶nobody ' there`, []string{`3 nobody`}},
		{"a quotation of the rule", "a.md", `No "anew" or “for ever”.`, nil},
		{"another quotation", "a.md", `He said "nobody waits".`, []string{`1 nobody`}},
		{"a code block", "a.md", `'''go¶f() // nobody waits¶'''`, []string{`2 nobody`}},

		{"a comment", "a.go", `package a¶¶// nobody¶var nobody int // those¶// that`, []string{`3 nobody`, `4 those that`}},
		{"a comment in a function", "a.go", `package a¶func f() {¶	// who¶	// asks¶}`, []string{`3 who asks`}},
		{"comments of two lines of code", "a.go", `package a¶var (¶	b int // of those¶	c int // that¶)`, nil},
		{"a general comment", "a.go", `package a¶/* nobody */`, []string{`2 nobody`}},
		{"a string", "a.go", `package a¶var e = errors.New("a: nobody")`, []string{`2 nobody`}},
		{"a raw string", "a.go", `package a¶var e = 'a:¶nobody'`, []string{`3 nobody`}},
		{"after a string in two parts", "a.go", `package a¶var e = "a " +¶	"b"¶// nobody`, []string{`4 nobody`}},
		{"a string in two parts", "a.go", `package a¶var e = "those " +¶	"that"`, []string{`2 those that`}},
		{"two strings", "a.go", `package a¶var e = f("those ",¶	"that")`, nil},
		{"a quotation in a string", "a.go", `package a¶var e = "no \"anew\" here"`, nil},
		{"a name", "a.go", `package a¶var e = f("nobody", "(null)")`, []string{`2 (null)`}},
		{"data of a test", "a_test.go", `package a¶var user, file = "nobody", 'nobody is here'`, nil},
		{"a text of a test", "a_test.go", `package a¶var text = "nobody came"`, []string{`2 nobody`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, f := range find(readerOf(tt.file)(tt.file, []byte(source.Replace(tt.source)))) {
				got = append(got, fmt.Sprint(f.line, " ", f.words))
				assert.NotEmpty(t, f.instead)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestFinding_String(t *testing.T) {
	f := finding{file: "docs/a.md", line: 3, words: "anew", instead: `"again"`}
	assert.Equal(t, `docs/a.md:3: anew: write "again"`, f.String())
}
