// Package storetest is for authors of a [backend.Backend] and for tests of code that uses a store. [Run] runs a
// conformance suite on a Backend. [Memory] is a Backend in memory whose server can be slow, lose answers, forget
// everything or have a wrong clock.
package storetest
