# Everything here needs Go, git, make and, for the race detector, a C compiler. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.NOTPARALLEL:
.DEFAULT_GOAL := help

GO ?= go

# The modules, by directory: those of go.work, the root first, and all. The others are tools, and tests with many dependencies:
# they do not choose the versions of the rest.
WORK    = $(shell $(GO) list -m -f '{{.Dir}}')
NESTED  = $(filter-out $(CURDIR),$(WORK))
MODULES = $(dir $(shell git ls-files '*go.mod'))

GOLANGCI_LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# What `make bench` runs: packages, a pattern of names (as it stands, where a $ is a $), how often each and how long.
PKG       ?= work
BENCH     ?= .
COUNT     ?= 1
BENCHTIME ?= 1s
# How long `make fuzz` stays with each target.
FUZZTIME  ?= 10s
# How long `make soak` runs.
SOAK      ?= 1m

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The cheap checks come first: what is wrong with them shows at once. Everything is built in one mode, that of the race
# detector and without the paths of this machine, because each dependency would else be compiled twice. Its programs do not
# sleep for a second at their end, as they do by default: the tests see to it that no goroutine is left then.
.PHONY: test
test: export GOFLAGS += -race -trimpath
test: export GORACE += atexit_sleep_ms=0
test: ahead format vet modules standalone checks platforms unit ## run every check and every test
# While the first checks compile, the servers are installed. The target servers waits for that, and says what has failed.
.PHONY: ahead
ahead:
	@if command -v flock >/dev/null; then scripts/servers >/dev/null 2>&1 </dev/null & fi

.PHONY: quick
quick: format ## what to run while you work: gofmt, and go vet and the shortened tests of the root module, without servers and tools/
	@echo "== quick: go vet and go test -short of the root module"
	packages=$$($(GO) list ./... | grep -v /tools/)
	$(GO) vet $$packages
	$(GO) test -short -vet=off $$packages

.PHONY: format
format: ## fail where gofmt would change something
	@echo "== format: gofmt"
	files=$$(gofmt -l .)
	if [ -n "$$files" ]; then echo "gofmt -w these:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## go vet over all modules
	@echo "== vet: go vet work"
	$(GO) vet work

.PHONY: fix
fix: ## fail where go fix knows a newer way to say it
	@echo "== fix: go fix -diff work"
	$(GO) fix -diff work

.PHONY: modules
modules: ## fail where go mod tidy would change something
	@echo "== modules: go mod tidy -diff"
	for dir in $(filter-out tools/rlsoracle/,$(MODULES)); do GOWORK=off $(GO) -C "$$dir" mod tidy -diff; done

# A nested module without go.work is what vet has looked at already, unless it then has other versions of its dependencies.
# go list fails where its go.mod lacks one.
VERSIONS = list -deps -test -f '{{with .Module}}{{.Path}} {{.Version}}{{end}}' ./...

.PHONY: standalone
standalone: ## check the nested modules as if there were no go.work
	@echo "== standalone: nested modules with GOWORK=off"
	others() { sort -u | grep -v '^github.com/weir-go/weir' || true; }
	for dir in $(NESTED); do
		with=$$($(GO) -C "$$dir" $(VERSIONS) | others)
		without=$$(GOWORK=off $(GO) -C "$$dir" $(VERSIONS) | others)
		if [ "$$with" = "$$without" ]; then continue; fi
		echo "== standalone: go vet in $${dir#$(CURDIR)/}, which has other versions than go.work"
		GOWORK=off $(GO) -C "$$dir" vet ./...
	done

# The checks of the repository itself: words that make a sentence hard to read, who may import whom, how much a type, a file and
# a package may hold, the exported API against api/, and scripts/release.
CHECKED = tools/voice|tools/archtest|tools/size|tools/apigolden
.PHONY: checks
checks: ## the checks of the repository: words, imports, sizes, the exported API, scripts/release
	@echo "== checks: tools/voice, tools/archtest, tools/size, tools/apigolden, tools/release"
	$(GO) test $(addprefix ./,$(subst |, ,$(CHECKED)))
	GOWORK=off $(GO) -C tools/release test -skip '^TestUsers$$' .

.PHONY: platforms
platforms: ## check the types of every package on every platform, tests included, and vet them
	@GOFLAGS="$${GOFLAGS:-}" && export GOFLAGS="$${GOFLAGS/-race/}"
	GOWORK=off $(GO) -C tools/crossvet run . -C "$(CURDIR)" windows/amd64 darwin/arm64 linux/386 js/wasm

# Most amd64 kernels run linux/386 as it is; then an int has 32 bits in this run. Without the race detector, which makes the
# random models of limiter and store five times slower, these have their full length.
.PHONY: root
root: ## the root module's tests without the race detector and at full length, with an int of 32 bits where that can be done: a part of make long
	@export CGO_ENABLED=0
	if [ "$$($(GO) env GOHOSTOS)" = linux ] && GOARCH=386 $(GO) test -vet=off -run '^$$' . >/dev/null 2>&1; then export GOARCH=386; fi
	echo "== root: go test as $$($(GO) env GOOS)/$$($(GO) env GOARCH)"
	$(GO) test -vet=off -parallel=8 $$($(GO) list ./... | grep -v /tools/)

# Uses a release as programs of users do, and prints what they link. It finds the modules that it needs in the module cache,
# which the target modules fills.
.PHONY: release-use
release-use: modules ## use a release in empty modules: before each release, and a part of make long
	@echo "== release-use: a release in empty modules"
	GOWORK=off $(GO) -C tools/release test -count=1 -v -run '^TestUsers$$' .

.PHONY: bench-once
bench-once: servers ## run each benchmark once, so that none rots; a part of make long
	@echo "== bench-once: each benchmark, once"
	dirs=$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n 1 dirname | sort -u)
	out=$$($(GO) test -vet=off -short -run '^$$' -bench . -benchtime 1x $$dirs 2>&1) || { echo "$$out"; exit 1; }

.PHONY: servers
servers: ## install the servers and the browser for the tests, where that can be done
	@echo "== servers: Redis, PostgreSQL, PgBouncer, Prometheus, Chromium"
	scripts/servers

# The target vet has vetted the tests already, which would take another minute here.
# Tests that need a server start it by tools/testserver, which finds what scripts/servers installed. Where a
# server is missing they skip themselves, saying so; where all are there, none may. With -short, random tests try fewer
# cases, and the stores run the conformance suite in one way instead of five: long has the rest. Many tests wait most of the
# time, so more of them, and of the packages, run at once than there are processors. The packages that take long come first.
LONG = ./simulate ./limiter ./store ./store/weirpostgres ./store/weirredis ./jobs ./cmd/weir
REQUIRE_SERVERS = if scripts/servers check; then export WEIR_REQUIRE_SERVERS=1; fi
.PHONY: unit
unit: servers ## the tests of every module under the race detector, random ones with fewer cases, but for checks
	@echo "== unit: go test -race work"
	$(REQUIRE_SERVERS)
	$(GO) run ./tools/testreport -race -vet=off -short -p=4 -parallel=8 -timeout=30m $(LONG) $$($(GO) list work | grep -vE '/($(CHECKED))$$')

.PHONY: oracle
oracle: servers ## transport/weirrls and weir rls beside the service of Envoy's that they stand for: a part of make long
	@echo "== oracle: tools/rlsoracle"
	$(REQUIRE_SERVERS)
	GOWORK=off $(GO) -C tools/rlsoracle mod tidy -diff
	GOWORK=off $(GO) -C tools/rlsoracle test -race -vet=off ./...

.PHONY: long
long: servers root oracle full bench-once release-use drill ## what make test shortens, in full: models, simulations, the stores, Envoy's service beside ours, all benchmarks, a release in use, drills

.PHONY: full
full: servers ## the tests with the race detector that make test shortens, at full length: a part of make long
	@echo "== full: go test -race"
	$(GO) test -race -vet=off -parallel=8 -timeout=30m ./simulate ./limiter ./store ./transport/weirgrpc ./strategies/circuitbreaker
	$(GO) test -race -vet=off -p=2 -parallel=3 -timeout=30m ./store/weirpostgres ./store/weirredis ./transport/weirhttp
	GOWORK=off $(GO) -C tools/crossvet test ./...

# With WEIR_DRILL, tests also assert how long something takes, and those run that do nothing else: see tools/stopwatch.
.PHONY: drill
drill: servers ## the tests that go by the clock, on a machine that does nothing else; a part of make long
	@echo "== drill: go test, one package after the other"
	$(REQUIRE_SERVERS)
	dirs=$$(grep -rlE --include='*_test.go' 'tools/stopwatch"|store/internal/drill"' . | xargs -n 1 dirname | sort -u)
	WEIR_DRILL=1 $(GO) run ./tools/testreport -count=1 -vet=off -short -p=1 $$dirs

.PHONY: bench
bench: ## run benchmarks: PKG=work BENCH=. COUNT=1 BENCHTIME=1s
	@$(GO) test -run '^$$' -bench '$(value BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) -timeout 0 -p 1 $(PKG)

# `make bench` runs each benchmark COUNT times before the next. Here a round runs all of them once, so that the
# benchmarks that are compared run at nearly the same time, and other work of the machine slows all of them alike.
.PHONY: bench-rounds
bench-rounds: ## run benchmarks of the one package PKG in COUNT=1 rounds: BENCH=. BENCHTIME=1s
	@dir=$$(mktemp -d)
	trap 'rm -rf "$$dir"' EXIT
	$(GO) test -c -o "$$dir/bench.test" $(PKG)
	cd "$$($(GO) list -f '{{.Dir}}' $(PKG))"
	for round in $$(seq $(COUNT)); do
		"$$dir/bench.test" -test.run '^$$' -test.bench '$(value BENCH)' -test.benchmem -test.benchtime $(BENCHTIME)
	done

.PHONY: fuzz
fuzz: ## run every fuzz target for a while: FUZZTIME=10s
	@GO="$(GO)" scripts/fuzz "$(FUZZTIME)"

.PHONY: soak
soak: ## run everything at once under random faults for SOAK=1m, and check what must hold
	@$(GO) run -race ./bench/soak -for $(SOAK)

.PHONY: lint
lint: fix ## go fix, and golangci-lint, built from source at a fixed version; the first run takes minutes
	@for dir in $(WORK); do
		echo "== lint: $${dir#$(CURDIR)/}"
		if [ -z "$$($(GO) -C "$$dir" list ./...)" ]; then continue; fi
		(cd "$$dir" && $(GO) run $(GOLANGCI_LINT) run --config "$(CURDIR)/.golangci.yml" ./...)
	done

.PHONY: size
size: ## print how much there is of each part of the repository, and how its files hang together
	@$(GO) run ./tools/size

.PHONY: api
api: ## write api/ again after an intended change of the exported API
	@$(GO) test ./tools/apigolden -run TestExportedAPI -count=1 -update

.PHONY: tidy
tidy: ## go mod tidy in every module
	@for dir in $(MODULES); do GOWORK=off $(GO) -C "$$dir" mod tidy; done
