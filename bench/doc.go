// Package bench compares weir with its peers: the same work, on the same machine, in the same run. README.md says what each
// benchmark compares and how to run it.
package bench
