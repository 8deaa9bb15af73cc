package ratelimitconfig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir/cmd/weir/internal/rlsconfig"
	"github.com/weir-go/weir/reload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// directory returns a directory with files.
func directory(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return dir
}

// one returns the options for a directory with one file.
func one(t testing.TB, content string) Options {
	t.Helper()
	return Options{Dir: directory(t, map[string]string{"f.yaml": content})}
}

const everything = `domain: edge
descriptors:
  - key: tenant
    value: gold-*
    share_threshold: true
    value_to_metric: yes
    descriptors:
      - key: 5
        detailed_metric: true
        shadow_mode: true
        quota_mode: on
        rate_limit: {unit: MINUTE, requests_per_unit: 010, name: slow, replaces: [{name: fast}]}
        metadata: {a: {1: [true, {x: ~}]}, n: 5, off: "off"}
  - key: free
    rate_limit: {unlimited: true, requests_per_unit: 25, unit: unknown}
  - key: none
    rate_limit: {unit: week}
`

func TestPrint(t *testing.T) {
	o := one(t, everything)
	text, err := o.Print()
	require.NoError(t, err)
	_, content, _ := strings.Cut(string(text), "\n")
	assert.Equal(t, `rls:
  mode: exact
  domains:
  - domain: edge
    descriptors:
    - key: tenant
      value: gold-*
      value_to_metric: true
      share_threshold: true
      descriptors:
      - key: '5'
        rate_limit:
          requests_per_unit: 8
          unit: minute
          name: slow
          replaces:
          - name: fast
        shadow_mode: true
        quota_mode: true
        detailed_metric: true
        metadata:
          a:
            '1':
            - true
            - x: null
          'n': 5
          'off': 'off'
    - key: free
      rate_limit:
        unlimited: true
    - key: none
      rate_limit:
        requests_per_unit: 0
        unit: week
`, content)
}

// What the other server refuses, it refuses, too, and says where.
func TestLoad_Refused(t *testing.T) {
	const limit = "domain: d\ndescriptors:\n  - key: a\n    rate_limit: "
	for content, want := range map[string]string{
		"":                                      "1:1: domain: must not be empty",
		"descriptors: []\n":                     "1:1: domain: must not be empty",
		"domain: [\n":                           "1:1: did not find expected node content",
		"- a\n":                                 "1:1: cannot unmarshal !!seq",
		"domain: d\nquota: 1\n":                 `2:1: unknown key "quota", must be one of domain, key,`,
		"domain: d\ndescriptors:\n  - Key: a\n": `3:5: unknown key "Key", did you mean key?`,
		"domain: d\n1: a\n":                     `2:1: the key "1" must be text`,
		"domain: d\ndescriptors: [a]\n":         `2:15: descriptors: must be a list of mappings, found "a"`,
		"domain: d\ndescriptors:\n  - value: a\n":                              "3:5: descriptors[0]: must have a key that is not empty",
		"domain: d\ndescriptors:\n  - key: a\n  - {key: a, descriptors: []}\n": `4:11: descriptors[1].key: must not form "a" with its value`,
		"domain: d\ndescriptors:\n  - {key: a, value: b}\n  - key: a_b\n":      `4:10: descriptors[1].key: must not form "a_b" with its value`,
		"domain: d\ndescriptors:\n  - key: a\n    share_threshold: true\n":     "4:22: descriptors[0].share_threshold: must be left out",
		limit + "{unit: fortnight, requests_per_unit: 1}\n":                    `4:24: descriptors[0].rate_limit.unit: must be one of second, minute, hour, day, week, month and year, got "fortnight"`,
		limit + "{unit: unknown, requests_per_unit: 1}\n":                      "must be one of second",
		limit + "{requests_per_unit: 1}\n":                                     "4:17: descriptors[0].rate_limit.unit: must be one of second",
		limit + "{unit: wee\u212a, requests_per_unit: 1}\n":                    "must be one of second",
		limit + "{unlimited: true, unit: day}\n":                               "4:41: descriptors[0].rate_limit.unit: must be left out with unlimited",
		limit + "{unit: day, requests_per_unit: -1}\n":                         "4:1: cannot unmarshal !!int `-1` into uint32",
		limit + "{unit: day, requests_per_unit: 4294967296}\n":                 "4:1: cannot unmarshal !!int",
		limit + "{unit: day, requests_per_unit: 1.5}\n":                        `4:48: requests_per_unit: must be text, a whole number, true or false, found "1.5"`,
		limit + "{unit: day, replaces: [{name: a}, {name: }]}\n":               "4:51: descriptors[0].rate_limit.replaces[1].name: must not be empty",
		limit + "{unit: day, name: a, replaces: [{name: a}]}\n":                "replaces[0].name: must not be the name of the limit itself",
		"domain: d\ndescriptors:\n  - key: a\n    metadata: {x: .nan}\n":       "4:15: descriptors[0].metadata: must have only what JSON has",
		"domain: d\ndescriptors:\n  - key: a\n    metadata: 5\n":               "4:1: cannot unmarshal !!int `5` into map",
		"domain: &a [*a]\n": "anchor 'a' value contains itself",
	} {
		_, err := one(t, content).Reader()()
		var wrong *reload.FileError
		if assert.ErrorAs(t, err, &wrong, content) {
			assert.Contains(t, err.Error(), "f.yaml:")
			assert.Contains(t, err.Error(), want, content)
		}
	}
}

// All problems of all files are told at once.
func TestLoad_Several(t *testing.T) {
	o := Options{Dir: directory(t, map[string]string{
		"a.yaml":      "domain: d\ndescriptors: [{key: ''}, {key: a, rate_limit: {unit: x}}]\n",
		"b/c.yml":     "domain: d\n",
		"b/.hidden":   "[",
		".git/x.yaml": "[",
		"notes.txt":   "[",
	})}
	_, err := o.Reader()()
	require.Error(t, err)
	assert.Equal(t, []string{
		"a.yaml:2:15: descriptors[0]: must have a key that is not empty",
		`a.yaml:2:54: descriptors[1].rate_limit.unit: must be one of second, minute, hour, day, week, month and year, got "x"`,
		`b/c.yml:1:9: domain: must not be "d", which is in a.yaml: put both into one file, or set -merge-domains (MERGE_DOMAIN_CONFIG)`,
	}, strings.Split(strings.ReplaceAll(err.Error(), o.Dir+"/", ""), "\n"))

	_, err = (Options{Dir: t.TempDir()}).Reader()()
	require.ErrorContains(t, err, "must have a file that ends with .yaml or .yml")
	_, err = (Options{Dir: filepath.Join(o.Dir, "none")}).Reader()()
	require.ErrorIs(t, err, os.ErrNotExist)
	require.EqualError(t, err, filepath.Join(o.Dir, "none")+": no such file or directory")
	_, err = (Options{Dir: filepath.Join(o.Dir, "a.yaml")}).Reader()()
	require.EqualError(t, err, filepath.Join(o.Dir, "a.yaml")+": must be a directory")
	require.NoError(t, os.Symlink(o.Dir, filepath.Join(t.TempDir(), "x.yaml")))
}

func TestMergeDomains(t *testing.T) {
	files := map[string]string{"a.yaml": "domain: d\ndescriptors: [{key: a}]\n", "b.yaml": "domain: d\ndescriptors: [{key: b}]\n"}
	o := Options{Dir: directory(t, files), MergeDomains: true}
	read := func() ([]rlsconfig.Domain, error) {
		all, err := ReadFiles(o.Dir)
		require.NoError(t, err)
		return o.domains(all)
	}
	domains, err := read()
	require.NoError(t, err)
	assert.Equal(t, []rlsconfig.Domain{{Domain: "d", Descriptors: []rlsconfig.Descriptor{{Key: "a", Descriptors: []rlsconfig.Descriptor{}}, {Key: "b", Descriptors: []rlsconfig.Descriptor{}}}}}, domains)
	files["b.yaml"] = files["a.yaml"]
	o.Dir = directory(t, files)
	_, err = read()
	require.ErrorContains(t, err, `b.yaml:2:21: descriptors[0].key: must not form "a" with its value`)
}

// A ConfigMap has its files once, and a directory can be a link.
func TestReadFiles_ConfigMap(t *testing.T) {
	dir := directory(t, map[string]string{"..2026/edge.yaml": "domain: d\n"})
	require.NoError(t, os.Symlink("..2026", filepath.Join(dir, "..data")))
	require.NoError(t, os.Symlink("..data/edge.yaml", filepath.Join(dir, "edge.yaml")))
	require.NoError(t, os.Symlink("..data", filepath.Join(dir, "linked.yaml")))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	files, err := ReadFiles(link)
	require.NoError(t, err)
	assert.Equal(t, []File{{filepath.Join(link, "edge.yaml"), []byte("domain: d\n")}}, files)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "big.yaml"), make([]byte, maxBytes+1), 0o600))
	_, err = ReadFiles(dir)
	require.ErrorContains(t, err, "the files must have at most 8388608 bytes together")
}

// Aliases can make a file of weir that is larger than the files that it stands for.
func TestOptions_TooLarge(t *testing.T) {
	o := one(t, "domain: d\ndescriptors:\n- {key: a0, metadata: {k: &k "+strings.Repeat("x", 100_000)+"}}\n")
	name := filepath.Join(o.Dir, "f.yaml")
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	for i := range 90 {
		content = fmt.Appendf(content, "- {key: b%d, metadata: {k: *k}}\n", i)
	}
	require.NoError(t, os.WriteFile(name, content, 0o600))
	_, err = o.Reader()()
	require.ErrorContains(t, err, o.Dir+": there are too many rules: as a file of weir they have 9")
	require.ErrorContains(t, err, " bytes, and must have at most 8388608")
}

func TestOptions_Config(t *testing.T) {
	o := one(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 3}}]\n")
	with := func(content string) ([]byte, error) {
		o.Config = filepath.Join(t.TempDir(), "weir.yaml")
		require.NoError(t, os.WriteFile(o.Config, []byte(content), 0o600))
		return o.Print()
	}
	text, err := with("rls: &r\n  listen: ':1'\n  max_connection_age: 1h\n  stores: {s: {redis: \"redis://a\"}}\n  mode: envoy\nlimiters: {l: {concurrency: {permit_limit: 1}}}\n")
	require.NoError(t, err)
	for _, part := range []string{"listen: :1\n", "max_connection_age: 1h\n", "mode: envoy\n", "domain: d\n", "permit_limit: 1"} {
		assert.Contains(t, string(text), part)
	}
	o.Mode = rlsconfig.Exact
	text, err = with(`{"rls": {"mode": "envoy"}}`)
	require.NoError(t, err)
	assert.Contains(t, string(text), "exact")
	assert.NotContains(t, string(text), `mode: "envoy"`)
	for content, message := range map[string]string{
		"rls: {hedaers: true}\n":           `weir.yaml:1:7: rls: unknown field "hedaers", did you mean "headers"?`,
		"allow_empty: true\n":              "weir.yaml:1:1: rls is missing",
		"rls:\n  domains: [{domain: d}]\n": "weir.yaml:2:12: rls.domains: must be left out with -ratelimit-config",
		"rls: {}\n---\nrls: {}\n":          "weir.yaml:",
	} {
		_, err := with(content)
		assert.ErrorContains(t, err, message)
	}
}

// The file is made again when one of its sources changes, and only then.
func TestOptions_Reader(t *testing.T) {
	o := one(t, "domain: d\n")
	o.Config = filepath.Join(t.TempDir(), "weir.yaml")
	put := func(file, content string) { require.NoError(t, os.WriteFile(file, []byte(content), 0o600)) }
	put(o.Config, "rls: {}\n")
	read := o.Reader()
	first, err := read()
	require.NoError(t, err)
	again, err := read()
	require.NoError(t, err)
	assert.Same(t, &first[0], &again[0])
	put(filepath.Join(o.Dir, "f.yaml"), "domain: e\n")
	second, err := read()
	require.NoError(t, err)
	assert.Contains(t, string(second), "domain: e")
	put(o.Config, "rls: {headers: true}\n")
	third, err := read()
	require.NoError(t, err)
	assert.Contains(t, string(third), "headers: true")
	put(o.Config, "rls: 1\n")
	_, err = read()
	require.ErrorContains(t, err, "weir.yaml:1:6: rls: must be a mapping")
	_, same := read()
	assert.Same(t, err, same)
	require.NoError(t, os.Remove(o.Config))
	_, err = read()
	require.ErrorIs(t, err, os.ErrNotExist)
}

// FuzzLoad checks that no content makes the loader panic, and that what it accepts is a file of weir.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{everything, "domain: d\n", "domain: d\ndescriptors: [{key: a, <<: {value: b*}, share_threshold: y}]\n",
		"domain: !!binary aGk=\n", "domain: &a d\ndescriptors: [{key: *a, metadata: {2001-01-01: 0x1F, ? [1] : 1}}]\n", "domain: \"\\0\"\n", "domain: 'd\n\n e'\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		l := newLoader(false)
		err := l.load(File{"f", []byte(content)}, place{})
		if err != nil {
			if _, ok := errors.AsType[*reload.FileError](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		text, err := yaml.Dump(map[string]any{rlsconfig.Field: Options{}.alone(l.domains)})
		if err != nil {
			t.Fatal(err)
		}
		kinds := reload.NewKinds()
		rlsconfig.Register(kinds, rlsconfig.Runtime{})
		file, err := reload.Parse("f", text, kinds)
		if err != nil {
			if !strings.Contains(err.Error(), "nested more than 100 deep") {
				t.Fatalf("%v\n%s", err, text)
			}
			return
		}
		if c, _ := reload.SectionOf[rlsconfig.RLS](file, rlsconfig.Field); len(c.Domains) != 1 || c.Domains[0].Domain != l.domains[0].Domain {
			t.Fatalf("%q became %v", l.domains[0].Domain, c.Domains)
		}
	})
}
