// Package registry keeps named pipelines: defined once, built when they are first
// asked for, rebuilt as often as their configuration changes, without losing what
// their limiters have counted and without leaking what is replaced.
//
//	r := registry.New(nil)
//	err := r.Define("orders", func(b *registry.Builder) error {
//		limits := current() // read your configuration here: it is read anew by each reload
//		b.Add(
//			ratelimit.New(b.TokenBucket("orders", limits.Bucket), nil),
//			timeout.New(limits.Timeout, nil),
//		)
//		return nil
//	})
//	...
//	orders, err := r.Get("orders") // the same handle for ever
//	...
//	err = r.Reload(ctx) // after the configuration has changed
//
// Most programs want [Registry.Define], [Registry.Get] and [Registry.Reload], and
// those whose pipelines stand in a file want package reload, which calls them.
//
// # What a reload does
//
// The build functions run again, all of them before anything changes. If one fails
// or panics, everything stays as it was. Otherwise the limiters that the new
// versions ask for by name get their new limits in place, keeping what was counted,
// and all handles change to their new versions. Executions that run already, those
// that wait in a limiter's queue included, end on the version on which they began,
// with the new limits where they wait for a limiter of the registry; when the last one has ended, what was replaced is disposed of: first the functions
// given to [Builder.OnDispose], in reverse order, then what the strategies own, then
// the limiters that no version uses any more.
//
// [Shared] is for limiters that several instances of a program have in common: what is
// counted is in a store, and stays there whatever becomes of the registry.
package registry
