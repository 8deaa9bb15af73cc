// Package registry keeps named pipelines. A pipeline is defined by a function, which builds it at once and again at each
// reload. A reload keeps what limiters have counted, and disposes of what it replaces.
//
//	r := registry.New(nil)
//	err := r.Define("orders", func(b *registry.Builder) error {
//		limits := current() // read the configuration here: the function runs again at each reload
//		b.Add(
//			ratelimit.New(b.TokenBucket("orders", limits.Bucket), nil),
//			timeout.New(limits.Timeout, nil),
//		)
//		return nil
//	})
//	...
//	orders, err := r.Get("orders") // the handle stays the same: keep it
//	...
//	err = r.Reload(ctx) // after the configuration has changed
//
// Most programs need [Registry.Define], [Registry.Get] and [Registry.Reload]. Programs whose pipelines are described
// in a file use package reload, which calls them.
//
// # What a reload does
//
// All build functions run before anything changes. If one fails or panics, everything stays as it was. Otherwise the
// limiters that the new versions name get their new limits in place, keeping what they have counted, and all handles
// change to their new versions.
//
// An execution that has begun ends on the version on which it began, also if it waits in a limiter's queue; a limiter
// of the registry decides about it by the new limits. When the last execution on a replaced version has ended, the
// version is disposed of: first the functions given to [Builder.OnDispose] run, the last one first, then what its
// strategies own is closed, then the limiters that no version uses any more.
//
// [Shared] returns a limiter that several instances of a program share. Its state is in a store and outlives the
// registry.
//
// # Where to read
//
//   - define.go: Define, Get and GetInstance, with first builds. plan.go: Reload, Apply and Remove, which build what one change
//     affects.
//   - build.go: Builder, one build. limiters.go, partitioned.go, shared.go, keep.go: the limiters and kept values that it asks for.
//   - swap.go: versions come into force, all of them or none, if they can be in force together.
//   - override.go: the limits of a limiter are replaced for a while.
//   - registry.go: Registry, its options and Close.
//   - drain.go: a replaced version waits for its last execution and is disposed of.
//   - pipelines.go: the pipelines by name, their handles and versions.
//   - resource.go: what versions share and reloads keep.
//   - events.go, errors.go: what the program is told.
package registry
