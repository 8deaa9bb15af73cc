// Package rlsoracle compares transport/weirrls and weir rls with envoyproxy/ratelimit, whose service runs in the same test. It
// is a module of its own, so that no user of weir gets what that needs.
//
// TestOracle sends the same random requests to both services. When an answer differs, it prints the rules and the requests.
// WEIR_ORACLE_SEED=N repeats a run, WEIR_ORACLE_CASES=N sets its length.
//
// What is meant to differ is in exceptions_test.go. The module of the other server is older than its newest source, so its
// answers about quotas are translated: see expected. Metadata of rules and values with a * in the middle are newer than the
// module. On 2026-11-23 the answers agreed with the source f2fb157 of July 2026 about these, too.
package rlsoracle
