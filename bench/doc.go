// Package bench compares weir with its peers, side by side: the same work, on the same machine, in the
// same run. There is nothing in it but benchmarks; README.md says what each compares and how to run it.
package bench
