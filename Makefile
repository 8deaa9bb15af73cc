# Everything here needs Go, git, make and, for the race detector, a C compiler. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.NOTPARALLEL:
.DEFAULT_GOAL := help

GO ?= go

# Every module of go.work, by directory, the root first.
MODULES = $(shell $(GO) list -m -f '{{.Dir}}')
NESTED  = $(filter-out $(CURDIR),$(MODULES))
# Modules of tools, and of tests with many dependencies, outside of go.work: they do not choose the versions of the others.
CROSSVET  = $(CURDIR)/tools/crossvet
RELEASE   = $(CURDIR)/tools/release
RLSORACLE = $(CURDIR)/tools/rlsoracle
TOOLS     = $(CROSSVET) $(RELEASE) $(RLSORACLE)

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
test: ahead format words vet modules standalone architecture api-check release-check platforms unit realtime ## run every check and every test
# While the first checks compile, the servers are installed. The target servers waits for that, and says what has failed.
.PHONY: ahead
ahead:
	@if command -v flock >/dev/null; then scripts/servers >/dev/null 2>&1 </dev/null & fi

.PHONY: quick
quick: format ## what to run while you work: gofmt, and go vet and the tests of the root module, without servers
	@echo "== quick: go vet and go test of the root module"
	$(GO) vet ./...
	$(GO) test -vet=off ./...

.PHONY: format
format: ## fail where gofmt would change something
	@echo "== format: gofmt"
	files=$$(gofmt -l .)
	if [ -n "$$files" ]; then echo "gofmt -w these:"; echo "$$files"; exit 1; fi

.PHONY: words
words: ## fail where a comment, an error text or a page has a word that makes a sentence hard to read
	@echo "== words: tools/voice"
	$(GO) test ./tools/voice

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
	for dir in $(MODULES) $(TOOLS); do GOWORK=off $(GO) -C "$$dir" mod tidy -diff; done

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
	GOWORK=off $(GO) -C $(RLSORACLE) vet ./...

# The systems that weir is checked for, tests included. The root module's tests also run without the race detector, which
# makes the random models of limiter and store five times slower: here they have their full length. Most amd64 kernels
# run linux/386 as it is; then an int has 32 bits in this run. Of NOT386, the first look at the repository itself and find
# the same everywhere, simulate takes as long as the limiters and the store together, which it is made of,
# transport/weirhttp waits for clients most of the time, and the others count little.
PLATFORMS = windows/amd64 darwin/arm64 linux/386 js/wasm
NOT386    = tools/[a-z]*|simulate|transport/weirhttp|telemetry|dashboard

.PHONY: platforms
platforms: ## compile and vet for every platform; run the root's tests without the race detector, with an int of 32 bits where that can be done
	@GOFLAGS="$${GOFLAGS:-}" && export GOFLAGS="$${GOFLAGS/-race/}"
	GOWORK=off $(GO) -C $(CROSSVET) test ./...
	GOWORK=off $(GO) -C $(CROSSVET) run . -C "$(CURDIR)" $(PLATFORMS)
	export CGO_ENABLED=0
	if [ "$$($(GO) env GOHOSTOS)" = linux ] && GOARCH=386 $(GO) test -vet=off -run '^$$' . >/dev/null 2>&1; then export GOARCH=386; fi
	echo "== platforms: go test as $$($(GO) env GOOS)/$$($(GO) env GOARCH)"
	$(GO) test -vet=off -parallel=8 $$($(GO) list ./... | grep -vE '/($(NOT386))$$')

.PHONY: architecture
architecture: ## who may import whom, and how much a type, a file and a package may hold
	@echo "== architecture: imports, the clock, sizes"
	$(GO) test ./tools/archtest ./tools/size

.PHONY: api-check
api-check: ## compare the exported API with api/
	@echo "== api: the exported API against api/"
	$(GO) test ./tools/apigolden

.PHONY: release-check
release-check: ## test scripts/release
	@echo "== release-check: scripts/release, .github"
	GOWORK=off $(GO) -C $(RELEASE) test -skip '^TestUsers$$' .

# Uses a release as programs of users do, and prints what they link. It finds the modules that it needs in the module cache,
# which the target modules fills. With WEIR_REQUIRE_MODULES=1 a missing one is a failure, otherwise the test is skipped.
.PHONY: release-use
release-use: export WEIR_REQUIRE_MODULES = 1
release-use: modules ## use a release in empty modules: before each release, and a part of make long
	@echo "== release-use: a release in empty modules"
	GOWORK=off $(GO) -C $(RELEASE) test -count=1 -v -run '^TestUsers$$' .

.PHONY: bench-once
bench-once: servers ## run each benchmark once, so that none rots; a part of make long
	@echo "== bench-once: each benchmark, once"
	dirs=$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n 1 dirname | sort -u)
	out=$$($(GO) test -vet=off -short -run '^$$' -bench . -benchtime 1x $$dirs 2>&1) || { echo "$$out"; exit 1; }

.PHONY: servers
servers: ## install the servers, the browser and the client for the tests, where that can be done
	@echo "== servers: Redis, PostgreSQL, PgBouncer, nginx, Caddy, Prometheus, Chromium, gRPC for Node"
	scripts/servers

# The target vet has vetted the tests already, which would take another minute here.
# Tests that need a server start it by tools/testserver, which finds what scripts/servers installed. Where a
# server is missing they skip themselves, saying so; where all are there, none may. With -short, random tests try fewer
# cases: platforms and long have the others. Most tests that call t.Parallel wait, so more of them run at once than there
# are processors. The packages that take long come first, so that short ones run beside them. REALTIME are packages whose
# tests go by real time. They run when the others are done, and what fails runs again alone: on a slow machine an
# answer comes too late while other tests compute. Most of the time they wait. With -short, the stores run the conformance
# suite in one way instead of five.
LONG     = ./simulate ./limiter ./store
REQUIRE_SERVERS = if scripts/servers check; then export WEIR_REQUIRE_SERVERS=1; fi
REALTIME = ./store/weirpostgres ./store/weirredis ./cmd/weir ./jobs ./transport/weirhttp ./tools/browsertest ./examples/deploytest ./examples/partner ./examples/jobs ./examples/cluster ./examples/reality
.PHONY: unit
unit: servers ## the tests of every module under the race detector, random ones with fewer cases, but for realtime
	@echo "== unit: go test -race work"
	$(REQUIRE_SERVERS)
	realtime=$$($(GO) list $(REALTIME))
	oracle=$$(mktemp)
	GOWORK=off $(GO) -C $(RLSORACLE) test -race -vet=off -short ./... >"$$oracle" 2>&1 &
	pid=$$!
	trap "kill $$pid 2>/dev/null || true; rm -f $$oracle" EXIT
	$(GO) run ./tools/testreport -race -vet=off -short -parallel=8 $(LONG) $$($(GO) list work | grep -vxF "$$realtime")
	echo "== unit: tools/rlsoracle, which ran beside these"
	if wait $$pid; then cat "$$oracle"; else cat "$$oracle"; exit 1; fi

.PHONY: realtime
realtime: servers ## the tests that go by real time
	@echo "== realtime: go test -race"
	$(REQUIRE_SERVERS)
	$(GO) run ./tools/testreport -again -race -vet=off -short -p=3 -parallel=3 $(REALTIME)

.PHONY: long
long: servers ## what make test shortens, in full: models, simulations, the stores, Envoy's service beside ours, all benchmarks, a release in use
	@echo "== long: go test -race"
	$(GO) test -race -vet=off -parallel=8 -timeout=30m $(LONG) ./transport/weirgrpc ./strategies/circuitbreaker
	GOWORK=off $(GO) -C $(RLSORACLE) test -race -vet=off ./...
	$(GO) test -race -vet=off -p=2 -parallel=3 -timeout=30m ./store/weirpostgres ./store/weirredis ./transport/weirhttp
	$(MAKE) bench-once release-use

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
soak: servers ## run everything at once under random faults for SOAK=1m, and check what must hold
	@$(GO) run -race ./bench/soak -for $(SOAK)

.PHONY: lint
lint: fix ## go fix, and golangci-lint, built from source at a fixed version; the first run takes minutes
	@for dir in $(MODULES); do
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
	@for dir in $(MODULES) $(TOOLS); do GOWORK=off $(GO) -C "$$dir" mod tidy; done
