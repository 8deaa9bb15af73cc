// Package rlsoracle compares transport/weirrls and weir rls with envoyproxy/ratelimit, whose service runs in the same test,
// and asks them through the client of envoyproxy/ratelimit. It is a module of its own, so that no user of weir gets what these
// need.
//
// TestOracle sends the same random requests to both services. When an answer differs, it prints the rules and the requests.
// WEIR_ORACLE_SEED=N repeats a run, WEIR_ORACLE_CASES=N sets its length.
//
// What is meant to differ is in exceptions_test.go, each with a test that it does. The module of the other server is older than
// its newest source, so some answers are translated: see expected. With a newer version in go.mod, nothing is translated, and
// the random rules have metadata and values with a * in the middle, too. On 2026-11-23 the answers agreed with the source
// f2fb157 of July 2026, by a replace directive.
package rlsoracle
