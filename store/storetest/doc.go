// Package storetest is for whoever writes a [backend.Backend], and for tests of what uses
// one: [Run] puts a Backend through a suite, and [Memory] is one in memory, whose
// server can be made slow, deaf, forgetful or wrong about the time.
package storetest
