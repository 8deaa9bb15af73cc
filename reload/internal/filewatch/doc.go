// Package filewatch watches one configuration file.
//
//	signals, stop := filewatch.NotifyHangup()
//	defer stop()
//	w, err := filewatch.New(&filewatch.Options{
//		Path:    "/etc/weir/pipelines.yaml",
//		Load:    load,    // decode, validate, build, swap
//		Problem: problem, // log it
//		Signals: signals,
//	})
//	if err != nil {
//		return err
//	}
//	if err := w.Reload(ctx); err != nil { // the first load, or why there was none
//		return err
//	}
//	go w.Run(ctx)
//
// One that may start without its file looks at the error first:
//
//	if read, ok := errors.AsType[*filewatch.ReadError](err); ok && read.Missing() {
//		err = nil // Run takes the file up when it appears
//	}
//
// # What counts as a change
//
// The file is read through whatever symbolic links lead to it, every two seconds,
// and the hash of its content is compared. Neither inodes nor times are looked
// at: a ConfigMap's update changes no file but the target of a link two
// directories away, an editor puts another file in place, two writes within a
// second may leave the same time behind, and some file systems report no events.
//
// A change is believed when two reads, 200 ms apart, agree about it. A file that
// is being written disagrees with itself, so nobody gets the first half of it;
// and one that is away for a moment, because an editor renamed it, is not
// reported missing. A writer that pauses for longer than that in the middle of
// the file gets the half loaded, which a strict decoder refuses; the rest is the
// next change.
//
// # What happens on a failure
//
// Whatever fails, what was loaded last stays and watching goes on. Each state of
// failure is reported once, when it begins or becomes another, and once more when
// it is over: see [Options.Problem].
//
// Content that was refused is loaded again when it changes or somebody asks, by
// [Watcher.Reload] or a signal. It is also tried again without that, after 5 s, 10 s
// and so on up to a minute apart, because what failed may have been something
// else, a database that building a limiter needs, and a file that is right should
// not stay unloaded because nobody was awake when the database came back. Who
// knows that the content itself is at fault says so with [Permanent], and spares
// the attempts.
//
// # What it cannot see
//
// Inside a container, a single file that was mounted by itself (a Docker bind
// mount of a file, a ConfigMap volume with subPath) stays the old file however
// often it is replaced outside. Mount the directory. On a network file system
// whose server hangs a read hangs with it, and no context ends that.
package filewatch
