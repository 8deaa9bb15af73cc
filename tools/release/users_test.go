package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "github.com/weir-go/weir"

// The version of the release that TestUsers makes. The user's module cache never gets it.
const testVersion = "v0.999.0"

// programs are what users write. Each is built in a module of its own and run. It may link the standard library and
// packages of the root module, and nothing else.
var programs = []struct{ name, prints, text string }{
	{"limiter", "true <nil>\ntrue <nil>\nfalse <nil>", `package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/limiter"
)

func main() {
	bucket, err := limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: 2, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour,
	})
	if err != nil {
		panic(err)
	}
	for range 3 {
		lease, err := bucket.Acquire(context.Background(), 1)
		fmt.Println(lease.Acquired(), err)
	}
}
`},
	{"pipeline, ratelimit and retry", "<nil>", `package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
)

func main() {
	bucket, err := limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: 2, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour,
	})
	if err != nil {
		panic(err)
	}
	calls, err := pipeline.New("calls",
		retry.New(&retry.Options{MaxRetries: 1, Delay: time.Millisecond}), ratelimit.New(bucket, nil))
	if err != nil {
		panic(err)
	}
	err = calls.Execute(context.Background(), func(context.Context) error { return nil })
	fmt.Println(err)
}
`},
}

// TestUsers does with a release what its users do, in empty modules: go get, go build, go install. Its module proxies
// are directories, so it reaches no address outside of the machine.
func TestUsers(t *testing.T) {
	repository, err := filepath.Abs("../..")
	require.NoError(t, err)
	u := newUser(t, repository)
	modules := u.release(t)

	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			dir := u.module(t, root)
			write(t, dir, "main.go", p.text)
			u.run(t, dir, "go", "build", "-o", "program", ".")
			assert.Equal(t, p.prints, u.run(t, dir, "./program"))
			linked := u.linked(t, dir)
			for _, pkg := range linked {
				if pkg.Module != root {
					t.Errorf("it links %s of %s", pkg.Path, pkg.Module)
				}
			}
			info, err := buildinfo.ReadFile(filepath.Join(dir, "program"))
			require.NoError(t, err)
			require.Len(t, info.Deps, 1, "only weir")
			assert.Equal(t, root+" "+testVersion, info.Deps[0].Path+" "+info.Deps[0].Version)
			t.Logf("a program with %s links %d packages of weir and %d modules of others", p.name, len(linked), len(info.Deps)-1)
		})
	}

	commands := 0
	for _, module := range modules {
		t.Run("all of "+module, func(t *testing.T) {
			dir := u.module(t, module)
			var text strings.Builder
			text.WriteString("package program\n\nimport (\n") // it is resolved, and not built: make test has compiled the same
			for _, pkg := range u.packages(t, dir, module) {
				if pkg.Name != "main" {
					fmt.Fprintf(&text, "\t_ %q\n", pkg.Path)
					continue
				}
				u.run(t, t.TempDir(), "go", "install", pkg.Path+"@"+testVersion)
				commands++
			}
			write(t, dir, "program.go", text.String()+")\n")
			u.run(t, dir, "go", "mod", "tidy")
			others := map[string]bool{}
			for _, pkg := range u.linked(t, dir) {
				if !ours(pkg.Module) {
					others[pkg.Module] = true
				}
			}
			t.Logf("a program with every package would link %d modules of others", len(others))
		})
		if module != root {
			t.Run("the checkout of "+module, func(t *testing.T) {
				out := u.run(t, t.TempDir(), "go", "mod", "download", "-json", module+"@"+testVersion)
				var d struct{ Dir string }
				require.NoError(t, json.Unmarshal([]byte(out), &d))
				text, err := os.ReadFile(filepath.Join(d.Dir, "go.mod"))
				require.NoError(t, err)
				assert.NotContains(t, string(text), "replace")
				u.run(t, d.Dir, "go", "mod", "tidy", "-diff") // go.mod and go.sum are complete
			})
		}
	}
	assert.NotZero(t, commands, "no module has a command: go install was not tried")
	t.Run("weir", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "weir.yaml", "pipelines: {calls: {strategies: [timeout: {timeout: 2s}]}}\n")
		t.Logf("weir explain: %s", u.run(t, dir, filepath.Join(u.bin, "weir"), "explain", "weir.yaml"))
	})
}

// A user has empty caches, apart from the build cache, and nothing but the release and what the module cache of this
// machine has.
type user struct {
	repository string
	proxy      string // the release
	machine    string // the module cache of this machine as a module proxy
	bin        string // where go install puts commands
	env        []string
}

func newUser(t *testing.T, repository string) *user {
	out, err := output(context.Background(), repository, []string{"GOWORK=off"}, goCommand(), "env", "-json", "GOMODCACHE", "GOCACHE", "GOROOT")
	require.NoError(t, err)
	var env struct{ GOMODCACHE, GOCACHE, GOROOT string }
	require.NoError(t, json.Unmarshal([]byte(out), &env))
	race := ""
	if slices.Contains(strings.Fields(os.Getenv("GOFLAGS")), "-race") { // make test compiles everything in this mode
		race = " -race"
	}
	u := &user{repository: repository, proxy: t.TempDir(), machine: fileProxy(env.GOMODCACHE), bin: t.TempDir()}
	u.env = []string{
		"PATH=" + filepath.Join(env.GOROOT, "bin") + string(filepath.ListSeparator) + os.Getenv("PATH"),
		"GOENV=off", "GOWORK=off", "GOTOOLCHAIN=local", "GOCACHE=" + env.GOCACHE, "GOMODCACHE=" + t.TempDir(), "GOBIN=" + u.bin,
		"GOPROXY=file://" + filepath.ToSlash(u.proxy) + "," + u.machine,
		"GOSUMDB=off", "GOPRIVATE=", "GONOPROXY=none", "GONOSUMDB=",
		// With -trimpath the build cache serves each run, and what other checks have compiled with it: without it, a package's
		// directory is a part of its key, and the module cache is in another one each time.
		"GOFLAGS=-mod=mod -modcacherw -trimpath" + race,
	}
	return u
}

// release writes the release to u.proxy and returns the paths of its modules.
func (u *user) release(t *testing.T) (modules []string) {
	cmd := exec.Command(filepath.Join(u.repository, "scripts", "release"), "-n", testVersion, u.proxy)
	cmd.Env = append(os.Environ(), "GOPROXY=off") // after the module cache
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "scripts/release\n%s", out)
	for line := range strings.SplitSeq(string(out), "\n") {
		if module, _, ok := strings.Cut(line, "@"+testVersion+" "); ok {
			modules = append(modules, module)
		}
	}
	require.Greater(t, len(modules), 1)
	require.Contains(t, modules, root)
	return modules
}

// run runs a program with what the user has.
func (u *user) run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := output(context.Background(), dir, u.env, name, args...)
	require.NoError(t, err, "make modules downloads what the module cache lacks")
	return out
}

// module makes an empty module that gets another one.
func (u *user) module(t *testing.T, path string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	u.run(t, dir, "go", "mod", "init", "example.com/program")
	u.run(t, dir, "go", "get", path)
	return dir
}

// A goPackage is what go list says about a package.
type goPackage struct{ Path, Name, Module string }

// linked returns the packages of the program in dir, without those of the standard library and its own.
func (u *user) linked(t *testing.T, dir string) []goPackage {
	t.Helper()
	return slices.DeleteFunc(u.list(t, dir, "-deps", "."), func(p goPackage) bool { return p.Module == "example.com/program" })
}

// packages returns the packages of a module that users can import or install.
func (u *user) packages(t *testing.T, dir, module string) []goPackage {
	t.Helper()
	all := u.list(t, dir, module+"/...")
	return slices.DeleteFunc(all, func(p goPackage) bool {
		return p.Module != module || slices.Contains(strings.Split(p.Path, "/"), "internal")
	})
}

func (u *user) list(t *testing.T, dir string, args ...string) (found []goPackage) {
	t.Helper()
	const format = "{{if not .Standard}}{{.ImportPath}} {{.Name}} {{.Module.Path}}{{end}}"
	for _, line := range lines(u.run(t, dir, "go", append([]string{"list", "-f", format}, args...)...)) {
		var p goPackage
		_, err := fmt.Sscan(line, &p.Path, &p.Name, &p.Module)
		require.NoError(t, err, line)
		found = append(found, p)
	}
	return found
}

// ours reports whether the path is that of a module of weir.
func ours(path string) bool { return path == root || strings.HasPrefix(path, root+"/") }

func write(t *testing.T, dir, file, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(file))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}
