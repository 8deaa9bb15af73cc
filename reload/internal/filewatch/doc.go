// Package filewatch watches one configuration file.
//
//   - watcher.go: Options and Watcher: when the file is read, when two reads agree, and when a load is tried again.
//   - signal_*.go: SIGHUP.
//
// # What is a change
//
// The file is read at every Interval, through all symbolic links that lead to it, and the hash of its content is
// compared. Inodes and times are not compared: the update of a ConfigMap changes only the target of a link two
// directories away, an editor puts another file in place, two writes within a second can have the same time, and some
// file systems report no events.
//
// A change counts when two reads, Settle apart, agree. A file that is being written gives
// different reads, so half of it is not loaded; a file that is missing for a moment, because an editor has renamed it, is
// not reported as missing. If a writer pauses in the middle of the file for longer than Settle, the first half is loaded. A
// strict decoder refuses it, and the complete file is loaded as the next change. [Watcher.Reload] and a signal load the file
// at once, as it is.
//
// # What happens on a failure
//
// After any failure the content that was loaded last stays in force, and watching goes on. A content that was refused
// is loaded again when it changes, by [Watcher.Reload] and by a signal. It is also tried again every 10 s: the reason can be
// outside of the file, such as a database that building a limiter needs, and the file must be loaded when the database is back.
// A load function that knows that the content itself is wrong returns [Permanent]; then it is not.
//
// # What is not noticed
//
// Inside a container, a single file that is mounted by itself (a Docker bind mount of a file, a ConfigMap volume with
// subPath) stays the old file when it is replaced outside. Mount the directory. If the server of a network file
// system hangs, a read hangs with it, and no context ends that.
package filewatch
