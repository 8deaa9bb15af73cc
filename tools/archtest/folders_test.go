// Package archtest checks rules of this repository that the compiler does not: which package may import which, and which
// functions the hot paths may not call.
package archtest

import (
	"path"
	"slices"
	"strings"
)

// A folder is one directory of the repository, or, where its name ends in "/*", every directory right below one. The
// packages in a folder's own "internal" belong to the folder unless they have a row.
//
// A pattern in mayImport is a folder, "x/*" for all folders right below x, or "..." for everything but the folders marked
// leaf. Patterns in thirdParty are module paths; "..." is any.
type folder struct {
	name       string
	mayImport  []string // folders, for code that is not a test
	thirdParty []string // modules, for code that is not a test
	testOnly   []string // modules, for tests, in addition to everyTest
	testing    bool     // code that is not a test may import "testing"
	leaf       bool     // nothing imports it, tests included
	everyone   bool     // every folder may import it, except folders that are for everyone themselves
}

// everyTest is what the tests of every folder may import in addition to the standard library.
var everyTest = []string{"github.com/stretchr/testify", "go.uber.org/goleak"}

// folders says which folder may import which. A new directory gets its row here, in the change that makes it. A row lists
// what the folder needs now.
//
// Tests may import any folder that is not marked leaf, because an example or a conformance test shows folders working
// together. The compiler forbids cycles there too.
var folders = []folder{
	// What a limit is: the vocabulary of the house.
	{name: "rate", everyone: true, mayImport: []string{"internal/durationtext", "internal/isnil", "internal/saturate", "internal/textenum", "internal/validate"}},
	{name: "limiter", mayImport: []string{"internal/deadline", "internal/durationtext", "internal/deterministic", "internal/heavyhitters", "internal/waitlist"}},
	// What authors of limiters need.
	{name: "limiter/custom", mayImport: []string{"limiter"}},
	{name: "limiter/estimate", mayImport: []string{"rate", "limiter"}},
	{name: "limiter/limitertest", mayImport: []string{"limiter", "limiter/custom"}, testing: true},
	{name: "limiter/internal/model", mayImport: []string{"rate", "limiter", "limiter/custom", "limiter/limitertest"}}, // what the tests compare with
	{name: "pipeline", mayImport: []string{"internal/deadline"}},
	// For the tests of programs that use weir.
	{name: "weirtest", mayImport: []string{"limiter", "limiter/custom", "pipeline"}},
	{name: "store", mayImport: []string{"rate", "store/backend", "limiter", "limiter/custom", "internal/answerby", "internal/eventqueue", "internal/deterministic", "internal/heavyhitters", "internal/waitlist"}},
	// What authors of backends need: not the store that calls them.
	{name: "store/backend", mayImport: []string{"rate"}},
	{name: "store/storetest", mayImport: []string{"rate", "store/backend"}, testing: true},
	{name: "store/internal/drill", mayImport: []string{"store", "store/backend", "limiter", "limiter/custom", "limiter/limitertest", "tools/stopwatch", "tools/testserver"}, testing: true},
	{name: "store/weirredis", mayImport: []string{"rate", "store", "store/backend"}, thirdParty: []string{"github.com/redis/go-redis/v9"}, testOnly: []string{"..."}},
	{name: "store/weirpostgres/pgmigrate", thirdParty: []string{"github.com/jackc/pgx/v5"}},
	{name: "store/weirpostgres", mayImport: []string{"rate", "store", "store/backend", "store/weirpostgres/pgmigrate"}, thirdParty: []string{"github.com/jackc/pgx/v5"}, testOnly: []string{"..."}},
	{name: "strategies/circuitbreaker", mayImport: []string{"pipeline", "strategies/internal/judge", "strategies/internal/window", "internal/durationtext"}},
	{name: "strategies/chaos", mayImport: []string{"pipeline", "strategies/internal/judge", "internal/deterministic"}},
	{name: "strategies/fallback", mayImport: []string{"pipeline", "strategies/internal/judge", "internal/holding"}},
	{name: "strategies/ratelimit", mayImport: []string{"pipeline", "limiter", "strategies/internal/judge", "strategies/internal/learning", "internal/holding", "internal/deterministic"}},
	{name: "strategies/internal/judge", mayImport: []string{"pipeline"}},
	// How ratelimit tells a limiter of adaptive of outcomes.
	{name: "strategies/internal/learning", mayImport: []string{"limiter", "strategies/internal/judge"}},
	// What retry and hedge share: each limits its extra attempts by it, and neither needs the other.
	{name: "strategies/budget", mayImport: []string{"strategies/internal/window"}},
	{name: "strategies/internal/window"}, // of two strategies that count by time
	{name: "strategies/hedge", mayImport: []string{"pipeline", "strategies/internal/judge", "strategies/budget", "internal/holding"}},
	{name: "strategies/retry", mayImport: []string{"pipeline", "strategies/internal/judge", "strategies/budget", "internal/holding", "internal/deterministic"}},
	{name: "strategies/timeout", mayImport: []string{"pipeline", "strategies/internal/judge", "internal/deadline"}},
	// A rejection by an adaptive limiter is that of any limiter: transports and listeners know one type. The bridge
	// makes policies of limiters by ratelimit's strategy. failsafe-go has the adaptive engines, and is the other side
	// of the bridge.
	{
		name:       "strategies/adaptive",
		mayImport:  []string{"pipeline", "limiter", "limiter/custom", "strategies/internal/judge", "strategies/internal/learning", "strategies/ratelimit", "internal/deterministic"},
		thirdParty: []string{"github.com/failsafe-go/failsafe-go"},
	},
	{
		name:       "strategies/weirfailsafe",
		mayImport:  []string{"pipeline", "limiter", "strategies/ratelimit", "internal/holding"},
		thirdParty: []string{"github.com/failsafe-go/failsafe-go"},
	},
	{name: "registry", mayImport: []string{"pipeline", "limiter", "store", "store/backend"}},
	{
		name: "reload",
		mayImport: []string{
			"registry", "limiter", "pipeline", "store", "store/backend", "internal/durationtext", "internal/regularfile",
			"strategies/budget", "strategies/chaos", "strategies/circuitbreaker", "strategies/fallback", "strategies/hedge",
			"strategies/ratelimit", "strategies/retry", "strategies/timeout",
		},
		thirdParty: []string{"go.yaml.in/yaml/v4"},
		testOnly:   []string{"github.com/santhosh-tekuri/jsonschema/v6"},
	},
	{name: "reload/adaptive", mayImport: []string{"reload", "limiter", "pipeline", "strategies/adaptive", "strategies/ratelimit"}}, // the kinds that need failsafe-go
	// The path of OpenTelemetry's API is the beginning of its SDK's, too: that the SDK is for tests only, a test
	// of telemetry holds.
	{
		name:       "telemetry",
		mayImport:  []string{"internal/ask", "pipeline", "limiter", "store"},
		thirdParty: []string{"go.opentelemetry.io/otel"},
		testOnly:   []string{"github.com/failsafe-go/failsafe-go"}, // to see what the bridge to it reports
	},

	// circuitbreaker: its Control isolates a circuit. ratelimit: the check of a pipeline must know which strategies only report.
	{
		name:      "dashboard",
		mayImport: []string{"internal/ask", "internal/durationtext", "registry", "reload", "pipeline", "limiter", "limiter/custom", "store", "strategies/circuitbreaker", "strategies/ratelimit"},
	},

	// storetest has the memory that its stores are in. strategies: the simulator knows where executions wait, and who rejects them.
	{
		name: "simulate",
		mayImport: []string{
			"registry", "reload", "pipeline", "limiter", "store", "store/backend", "store/storetest", "internal/deterministic", "internal/durationtext",
			"strategies/chaos", "strategies/circuitbreaker", "strategies/fallback", "strategies/hedge", "strategies/ratelimit", "strategies/retry", "strategies/timeout",
			"simulate/internal/bubble",
		},
	},
	{name: "simulate/internal/bubble", testing: true}, // of testing/synctest, which needs a testing.T

	{
		name:      "transport/weirhttp",
		mayImport: []string{"pipeline", "limiter", "limiter/custom", "strategies/ratelimit", "strategies/timeout", "registry", "transport/internal/admission", "transport/internal/exchange", "transport/internal/forwarded", "transport/internal/status", "internal/holding"},
	},

	// What weirhttp and weirgrpc have in common: policies that are asked in order, and what they have granted to a call.
	{name: "transport/internal/exchange", mayImport: []string{"pipeline"}}, // of the attempts at a request, or to run its handler
	{name: "transport/internal/admission", mayImport: []string{"pipeline", "limiter", "limiter/custom", "strategies/ratelimit", "registry", "transport/internal/status"}},
	{name: "transport/internal/status", mayImport: []string{"pipeline", "limiter", "strategies/ratelimit"}}, // what a client is told
	{name: "transport/internal/forwarded"}, // the address of a client behind proxies: in a header or in metadata
	{
		name:       "transport/weirgrpc",
		mayImport:  []string{"pipeline", "limiter", "strategies/ratelimit", "strategies/timeout", "registry", "transport/internal/admission", "transport/internal/exchange", "transport/internal/forwarded", "transport/internal/status"},
		thirdParty: []string{"google.golang.org/grpc", "google.golang.org/genproto/googleapis/rpc", "google.golang.org/protobuf"},
		testOnly:   []string{"..."},
	},
	{
		name:       "transport/weirrls",
		mayImport:  []string{"pipeline", "limiter", "limiter/custom", "strategies/ratelimit", "store", "transport/internal/admission", "transport/internal/status", "internal/answerby"},
		thirdParty: []string{"github.com/envoyproxy/go-control-plane/envoy", "google.golang.org/grpc", "google.golang.org/protobuf"},
		testOnly:   []string{"..."},
	},

	{
		name:       "jobs",
		mayImport:  []string{"store/weirpostgres/pgmigrate", "internal/eventqueue"},
		thirdParty: []string{"github.com/riverqueue/river", "github.com/jackc/pgx/v5"},
	},

	// A module of its own, because the gateway needs what no package does: a Prometheus exporter, drivers, a verifier of tokens.
	// Apart from jobs, whose users need not link the dashboard.
	{name: "jobs/jobsdashboard", mayImport: []string{"jobs", "dashboard"}, testOnly: []string{"github.com/riverqueue/river", "github.com/jackc/pgx/v5"}},
	// Apart from jobs, so that a program links YAML and OpenTelemetry only if it asks for them.
	{name: "jobs/jobsconfig", mayImport: []string{"jobs"}, thirdParty: []string{"go.yaml.in/yaml/v4"}},
	{name: "jobs/jobsmetrics", mayImport: []string{"jobs"}, thirdParty: []string{"go.opentelemetry.io/otel"}, testOnly: []string{"github.com/riverqueue/river"}},
	{name: "jobs/internal/jobstest", mayImport: []string{"store/weirpostgres/pgmigrate"}, testing: true,
		thirdParty: []string{"github.com/riverqueue/river", "github.com/jackc/pgx/v5", "github.com/stretchr/testify"}},

	{name: "cmd/weir", mayImport: []string{"..."}, thirdParty: []string{"..."}, leaf: true},

	// The examples and the comparisons with peers may use anything, and nothing uses them.
	{name: "examples/*", mayImport: []string{"..."}, thirdParty: []string{"..."}, leaf: true},
	{name: "bench", mayImport: []string{"..."}, thirdParty: []string{"..."}, leaf: true},
	{name: "bench/gateway", mayImport: []string{"tools/testserver"}, leaf: true},
	{name: "bench/rls", mayImport: []string{"tools/testserver"}, thirdParty: []string{"github.com/envoyproxy/go-control-plane/envoy", "golang.org/x/net/http2", "google.golang.org/grpc", "google.golang.org/protobuf/proto"}, leaf: true},
	{name: "bench/soak", mayImport: []string{"..."}, thirdParty: []string{"..."}, leaf: true},

	// What all packages share: the error of wrong options and Must.
	{name: ".", everyone: true},
	{name: "internal/validate", everyone: true, mayImport: []string{".", "internal/isnil"}},
	{name: "internal/textenum", everyone: true, mayImport: []string{"internal/validate"}},
	{name: "internal/clock", everyone: true},
	{name: "internal/ctxerr", everyone: true},
	{name: "internal/saturate", everyone: true},
	{name: "internal/isnil", everyone: true},
	{name: "internal/recovered", everyone: true},
	// The context of a timeout, which pipelines hand on.
	{name: "internal/deadline"},
	// Until when a caller can use a store's answer.
	{name: "internal/answerby"},
	// How a transport holds the permits of a request until the body of its response is closed.
	{name: "internal/holding"},
	// How store and jobs hand events to the program.
	{name: "internal/eventqueue"},
	// The callers that wait for a limiter, a channel or a key of a store.
	{name: "internal/waitlist", mayImport: []string{"rate"}},
	// How limiter and store find the keys that are rejected most.
	{name: "internal/heavyhitters"},
	// How reload and cmd/weir read a path that may lead to a pipe.
	{name: "internal/regularfile"},
	// How telemetry and dashboard ask limiters that may never answer.
	{name: "internal/ask"},
	// What simulate needs of the packages that it runs: turns, random numbers and hashes that repeat.
	{name: "internal/deterministic"},
	// How dashboard, reload, simulate and cmd/weir write durations.
	{name: "internal/durationtext", everyone: true},

	// What watches over the repository itself.
	{name: "tools/repo"},
	{name: "internal/fieldtable"}, // for the tests of the reference pages
	{name: "tools/testserver", testing: true},
	{name: "tools/readme", leaf: true},
	{name: "tools/testreport", leaf: true},
	// For tests that go by the clock.
	{name: "tools/stopwatch", testing: true},
	{name: "tools/archtest", leaf: true},
	{name: "tools/size", leaf: true, mayImport: []string{"tools/repo"}},
	// A module of its own, for the driver of the browser.
	{name: "tools/browsertest", leaf: true, testOnly: []string{"..."}},
	{name: "tools/voice", leaf: true},
	{
		name: "tools/hooktest", leaf: true,
		testOnly: []string{"github.com/failsafe-go/failsafe-go", "go.opentelemetry.io/otel"},
	},
	{name: "tools/apigolden", leaf: true},
}

// folderOf finds the row of a directory, given as a slash-separated path below the root.
func folderOf(dir string) (folder, bool) {
	for _, r := range folders {
		if matches(r.name, dir) {
			return r, true
		}
	}
	if i := strings.LastIndex(dir, "/internal/"); i >= 0 {
		return folderOf(dir[:i])
	}
	return folder{}, false
}

// matches reports whether dir is what the pattern names. It is a folder's name or ends in "/*".
func matches(pattern, dir string) bool {
	if parent, ok := strings.CutSuffix(pattern, "/*"); ok {
		return path.Dir(dir) == parent
	}
	return pattern == dir
}

// mayImportFolder reports whether code of r that is not a test may import the folder to.
func (r folder) mayImportFolder(to folder) bool {
	if r.name == to.name {
		return true // its own internal directory
	}
	if to.everyone && !r.everyone {
		return true
	}
	if to.leaf {
		return false
	}
	return slices.ContainsFunc(r.mayImport, func(pattern string) bool {
		return pattern == "..." || matches(pattern, to.name)
	})
}

// inModules reports whether the import path is in one of the modules.
func inModules(modules []string, importPath string) bool {
	return slices.ContainsFunc(modules, func(module string) bool {
		return module == "..." || importPath == module || strings.HasPrefix(importPath, module+"/")
	})
}
