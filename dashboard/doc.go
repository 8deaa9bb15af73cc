// Package dashboard shows what the pipelines of a registry do right now: pipelines, limiters, circuits, keys that are
// rejected most, events, stores, throttled jobs and the configuration file. It is an [http.Handler] that a program
// mounts where it likes:
//
//	var events dashboard.Events
//	r := registry.New(&registry.Options{Listener: &events})
//	w, err := reload.Start(ctx, r, "weir.yaml", nil)
//	...
//	d, err := dashboard.New(dashboard.Options{Registry: r, Events: &events, Watchers: []*reload.Watcher{w}})
//	...
//	defer d.Close()
//	http.Handle("/weir/", http.StripPrefix("/weir", d))
//
// The dashboard has no login. Wrap the handler with the authentication that the program has, or serve it on an address
// that only operators reach. It shows and changes this process; only limits in a store and throttled jobs are those of all
// instances. Without [Options.Authorize] it is read-only.
//
// Every page is also JSON and text: see [Dashboard.ServeHTTP]. [Events] records what is out of the ordinary and costs an
// execution that succeeds nothing.
package dashboard
