package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/fieldtable"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/simulate"
)

const simulatePage = "docs/simulate.md" // from the root of the repository

// The page is made of testdata/simulate.md. A line "{{output}}" stands for what the commands of the block above it print,
// and "{{output: Totals}}" for the first part of that and the part Totals. Pictures that the commands write are compared,
// too.
func TestSimulatePage(t *testing.T) {
	template := read(t, "testdata/simulate.md")
	t.Chdir("../..")
	template = runCommands(t, template)
	defs, err := fieldtable.Definitions([]byte(weir("", "schema", "-load").out))
	require.NoError(t, err)
	made, err := fieldtable.Fill(template, loadTables(t, template, defs))
	require.NoError(t, err, "testdata/simulate.md")
	if *update {
		require.NoError(t, os.WriteFile(simulatePage, []byte(made), 0o644))
	}
	assert.Equal(t, made, read(t, simulatePage), "if the change is meant, run go test ./cmd/weir -run SimulatePage -update")
}

// loadExamples are what the page shows for fields that are mappings or lists without a table of their own.
var loadExamples = map[string]string{
	"load.open.rate.bursts":       "{size: 100, first: 5s, every: 1m}",
	"load.open.rate.ramp":         "{from: 10, to: 100, for: 5m}",
	"load.open.rate.sine":         "{mean: 100, amplitude: 80, period: 1h}",
	"load.open.rate.steps":        "[{rate: 200, for: 2m}, {rate: 400, ramp: 1m}]",
	"load.open.rate.sum":          "[{constant: 50}, {bursts: {size: 100}}]",
	"load.keys.abuser":            "{share: 0.5, others: 100}",
	"load.keys.uniform":           "{count: 100}",
	"load.keys.zipf":              "{count: 1000, exponent: 1}",
	"load.cost.mixed":             "[{permits: 1, weight: 99}, {permits: 100, weight: 1}]",
	"load.cost.uniform":           "{min: 1, max: 10}",
	"service.latency.exponential": "{mean: 20ms}",
	"service.latency.log_normal":  "{median: 20ms, p99: 150ms}",
	"service.latency.uniform":     "{min: 5ms, max: 50ms}",
}

// loadTables returns the tables of a load file that the page has. Tables that are the same stand there once.
func loadTables(t *testing.T, template string, defs map[string]*fieldtable.Definition) map[string]string {
	t.Helper()
	same := strings.NewReplacer(
		"(#loadclosedthink)", "(#servicelatency)", "(#serviceperiodslatency)", "(#servicelatency)",
		"(#clientson_failure)", "(#clientson_rejection)",
	)
	all := make(map[string]string)
	for _, section := range []string{"load", "service", "clients"} {
		for path, table := range (fieldtable.Words{"duration": "duration"}).Tables(defs["section."+section], section) {
			if strings.Contains(template, "{{"+path+"}}") {
				table = same.Replace(table)
				for field, example := range loadExamples {
					link := regexp.MustCompile(`(list of )?\[mappings?\]\(#` + strings.ReplaceAll(field, ".", "") + `\)`)
					table = link.ReplaceAllString(table, "such as `"+example+"`")
				}
				all[path] = table
			}
		}
	}
	return all
}

var (
	shellBlock  = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	outputFlags = regexp.MustCompile(`-(o|out|expect) ('[^']*'|\S+)\s*`)
	outputLine  = regexp.MustCompile(`(?m)^\{\{output(: .*)?\}\}$`)
)

// runCommands runs the commands of a page, and fills in what they print.
func runCommands(t *testing.T, template string) string {
	t.Helper()
	simulated := make(map[string]*simulate.Result)
	var page strings.Builder
	rest := template
	for {
		at := shellBlock.FindStringSubmatchIndex(rest)
		if at == nil {
			page.WriteString(rest)
			return page.String()
		}
		printed := runBlock(t, simulated, rest[at[2]:at[3]])
		page.WriteString(rest[:at[1]])
		rest = rest[at[1]:]
		end := len(rest)
		if next := shellBlock.FindStringIndex(rest); next != nil {
			end = next[0]
		}
		page.WriteString(outputLine.ReplaceAllStringFunc(rest[:end], func(line string) string {
			_, names, some := strings.Cut(strings.TrimSuffix(line, "}}"), ": ")
			if some {
				return "```\n" + parts(t, printed, strings.Split(names, ", ")) + "```"
			}
			return "```\n" + printed + "```"
		}))
		rest = rest[end:]
	}
}

// runBlock runs the commands of a block that are weir simulate, and returns what they print. What a command before it has simulated
// for another format of the output is not simulated again: under the race detector it takes ten times as long.
func runBlock(t *testing.T, simulated map[string]*simulate.Result, block string) string {
	t.Helper()
	var printed strings.Builder
	for command := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		line, ok := strings.CutPrefix(strings.TrimSpace(command), "go run ./cmd/weir simulate ")
		if !ok {
			continue
		}
		args := append([]string{"simulate"}, words(line)...)
		picture := ""
		if i := slices.Index(args, "-out"); i >= 0 {
			picture = args[i+1]
			if !*update || !strings.HasPrefix(picture, "docs/images/") {
				args[i+1] = filepath.Join(t.TempDir(), "out")
			}
			defer func(got string) {
				if strings.HasPrefix(picture, "docs/images/") {
					assert.True(t, read(t, picture) == read(t, got), "%s is another one now: run go test ./cmd/weir -run SimulatePage -update, and look at it", picture)
				}
			}(args[i+1])
		}
		var out, stderr strings.Builder
		c := newCommand(nil, &out, &stderr)
		key := outputFlags.ReplaceAllString(line, "")
		c.runScenario = func(ctx context.Context, s simulate.Scenario) (r *simulate.Result, err error) {
			key += "+"
			if r = simulated[key]; r == nil {
				r, err = simulate.Run(ctx, s)
				simulated[key] = r
			}
			return r, err
		}
		status := c.run(args)
		unmet := strings.Contains(stderr.String(), "weir simulate: expected ")
		assert.Equal(t, map[bool]int{false: 0, true: 1}[unmet], status, "%s\n%s", command, &stderr)
		printed.WriteString(out.String() + stderr.String())
	}
	return printed.String()
}

// words splits a command as a shell does, as far as the page needs it.
func words(line string) (all []string) {
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
		all = append(all, strings.Trim(word, "'"))
	}
	return all
}

// parts returns the first part of a report, and those with the given names.
func parts(t *testing.T, printed string, names []string) string {
	t.Helper()
	all := strings.Split(strings.TrimSuffix(printed, "\n"), "\n\n")
	chosen := all[:1:1]
	for _, name := range names {
		i := slices.IndexFunc(all, func(part string) bool { return strings.HasPrefix(part, name+"\n") })
		require.GreaterOrEqual(t, i, 0, "there is no part %s", name)
		chosen = append(chosen, all[i])
	}
	return strings.Join(chosen, "\n\n") + "\n"
}

// The page names every flag, and its load file and loads are right.
func TestSimulatePage_Flags(t *testing.T) {
	page := read(t, "../../docs/simulate.md")
	c := &command{kinds: reload.NewKinds()}
	(&simulation{command: c}).flags().VisitAll(func(f *flag.Flag) {
		if f.Name != "strict" && !slices.Contains(reload.Registrations(), f.Name) {
			assert.Regexp(t, "[` ]-"+f.Name+"[` ]", page)
		}
	})
	yaml := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, yaml)
	for i, block := range yaml {
		s, err := simulate.ParseScenario(fmt.Sprintf("block %d", i), []byte(block[1]))
		require.NoError(t, err)
		s.Config = simulate.File("", nil, nil)
		assert.NoError(t, s.Validate())
	}
}

// What the page shows for fields of a load file can be written there.
func TestSimulatePage_LoadExamples(t *testing.T) {
	for path, example := range loadExamples {
		fields := strings.Split(path, ".")
		text := strings.Join(fields, ": {") + ": " + example + strings.Repeat("}", len(fields)-1)
		if !strings.HasPrefix(path, "load.open.") {
			text = "load: {for: 1m, open: {rate: {constant: 1}}" + strings.TrimPrefix(text, "load: {")
			if fields[0] == "load" {
				text = strings.Replace(text, "{constant: 1}}", "{constant: 1}}, ", 1)
			} else {
				text = strings.Replace(text, "{constant: 1}}", "{constant: 1}}}\n", 1)
			}
		} else {
			text = strings.Replace(text, "load: {", "load: {for: 1m, ", 1)
		}
		s, err := simulate.ParseScenario("load.yaml", []byte(text))
		require.NoError(t, err, text)
		s.Config = simulate.File("", nil, nil)
		assert.NoError(t, s.Validate(), text)
	}
}

// The page has every metric of expectations, and no others.
func TestSimulatePage_Metrics(t *testing.T) {
	_, err := simulate.ParseExpectation("zzzzzzzz = 0")
	require.Error(t, err)
	_, list, ok := strings.Cut(err.Error(), "there are ")
	require.True(t, ok, err)
	_, table, ok := strings.Cut(read(t, "../../docs/simulate.md"), "| metric |")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n\n")
	var named []string
	for row := range strings.Lines(table) {
		first, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
		for _, name := range regexp.MustCompile("`([a-z][a-z0-9_]*)").FindAllStringSubmatch(first, -1) {
			named = append(named, name[1])
		}
	}
	assert.ElementsMatch(t, strings.Split(list, ", "), named)
}
