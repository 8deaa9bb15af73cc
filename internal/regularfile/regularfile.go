// Package regularfile reads files whose path comes from the user: it can lead to a pipe or a device, where opening or
// reading waits for another process, possibly forever.
package regularfile

import (
	"errors"
	"fmt"
	"io"
	"os"
)

var (
	// ErrNotRegular means that the path leads to something other than a file: a directory, a pipe.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLarge means that the file has more bytes than the caller wants.
	ErrTooLarge = errors.New("too large")
)

// Read reads a file that has at most limit bytes, whatever links lead to it. It looks before it opens the file,
// because opening a device can have effects, and again at what it has opened: meanwhile a pipe may have taken the
// place of the file.
func Read(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := check(info, limit); err != nil {
		return nil, err
	}
	return open(path, limit)
}

// open opens and reads the file. It does not wait for a process that writes into a pipe.
func open(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblocking, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := check(info, limit); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > limit { // it grew, or is one of those in /proc, whose size is 0
		return nil, tooLarge(limit)
	}
	return content, nil
}

func check(info os.FileInfo, limit int64) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("%w but a directory", ErrNotRegular)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w (%v)", ErrNotRegular, info.Mode().Type())
	case info.Size() > limit:
		return tooLarge(limit)
	}
	return nil
}

// tooLarge does not mention the size: a file that grows is the same problem.
func tooLarge(limit int64) error {
	return fmt.Errorf("%w: it has more than %d bytes", ErrTooLarge, limit)
}
