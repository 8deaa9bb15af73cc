package voice

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
)

// banned are the words, in lower case, each with what to write instead.
var banned = []struct{ words, instead string }{
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

var (
	bannedPattern = regexp.MustCompile(`(?i)` + anyOfBanned())
	// quotedPattern matches a banned word that is quoted by itself, as a rule about words does it.
	quotedPattern = regexp.MustCompile(`(?i)\\?["“]` + anyOfBanned() + `\\?["”]`)
	// codePattern matches a code span, which can go on in the next line but not in the next paragraph.
	codePattern = regexp.MustCompile("`(?:[^`\n]|\n[^`\n])+`")
)

// anyOfBanned is the pattern of all banned words. Between the words of a phrase can be a line break.
func anyOfBanned() string {
	var alternatives []string
	for _, b := range banned {
		p := strings.ReplaceAll(regexp.QuoteMeta(b.words), " ", `\s+`)
		if p[0] != '\\' {
			p = `\b` + p + `\b`
		}
		alternatives = append(alternatives, p)
	}
	return "(?:" + strings.Join(alternatives, "|") + ")"
}

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

// find returns the banned words in prose, but for code spans and words that are quoted by themselves.
func find(prose []byte) []finding {
	if !bannedPattern.Match(prose) {
		return nil // most files
	}
	for _, p := range []*regexp.Regexp{codePattern, quotedPattern} {
		prose = p.ReplaceAllFunc(prose, func(m []byte) []byte { return blank(m) })
	}
	var found []finding
	for _, at := range bannedPattern.FindAllIndex(prose, -1) {
		f := finding{line: 1 + bytes.Count(prose[:at[0]], []byte("\n"))}
		f.words = strings.ToLower(strings.Join(strings.Fields(string(prose[at[0]:at[1]])), " "))
		for _, b := range banned {
			if b.words == f.words {
				f.instead = b.instead
			}
		}
		found = append(found, f)
	}
	return found
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
				copy(prose[last[0].end-1:start+1], bytes.Repeat([]byte(" "), start+2-last[0].end))
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
