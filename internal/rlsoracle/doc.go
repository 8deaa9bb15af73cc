// Package rlsoracle compares transport/weirrls and weir rls with envoyproxy/ratelimit, whose service runs in the same test,
// and asks them through other clients: the client of envoyproxy/ratelimit, and Node's gRPC with a model of Envoy's filter. It
// is a module of its own, so that no user of weir gets what these need.
//
// TestOracle sends the same random requests to both services. When an answer differs, it prints the smallest rules and
// requests that it has found for which one does. WEIR_ORACLE_SEED=N repeats a run, WEIR_ORACLE_CASES=N sets its length.
//
// What is meant to differ is in exceptions_test.go, each with a test that it does.
package rlsoracle
