//go:build !unix

package main

import "os"

var endings = []os.Signal{os.Interrupt}

func ignoreBrokenPipe() {}
