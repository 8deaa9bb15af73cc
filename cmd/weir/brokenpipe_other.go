//go:build !unix

package main

// ignoreBrokenPipes does nothing: such writes fail.
func ignoreBrokenPipes() {}
