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
// A program that can start without the file checks the error first:
//
//	if read, ok := errors.AsType[*filewatch.ReadError](err); ok && read.Missing() {
//		err = nil // Run loads the file when it exists
//	}
//
// # What is a change
//
// The file is read every two seconds, through all symbolic links that lead to it, and the hash of its content is
// compared. Inodes and times are not compared: the update of a ConfigMap changes only the target of a link two
// directories away, an editor puts another file in place, two writes within a second can have the same time, and some
// file systems report no events.
//
// A change counts when two reads, 200 ms apart, agree. A file that is being written gives different reads, so half of
// it is not loaded; a file that is missing for a moment, because an editor has renamed it, is not reported as
// missing. If a writer pauses in the middle of the file for longer than that, the half is loaded, which a strict
// decoder refuses; the rest is the next change.
//
// # What happens on a failure
//
// After any failure the content that was loaded last stays in force, and watching goes on. Each failure is reported
// once when it begins or changes, and once when it is over: see [Options.Problem].
//
// A content that was refused is loaded again when it changes, by [Watcher.Reload] and by a signal. It is also tried
// again after 5 s, 10 s and so on, at most a minute apart: the reason can be outside of the file, such as a database
// that building a limiter needs, and the file must be loaded when the database is back. A load function that knows
// that the content itself is wrong returns [Permanent], which ends the attempts.
//
// # What is not noticed
//
// Inside a container, a single file that is mounted by itself (a Docker bind mount of a file, a ConfigMap volume with
// subPath) stays the old file when it is replaced outside. Mount the directory. If the server of a network file
// system hangs, a read hangs with it, and no context ends that.
package filewatch
