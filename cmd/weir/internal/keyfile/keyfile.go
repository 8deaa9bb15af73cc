// Package keyfile has what files with keys stand for, such as a certificate and its private key. The files are read again when they
// change.
package keyfile

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/regularfile"
)

// maxSize bounds a file, in bytes.
const maxSize = 1 << 20

// A File is what one file or several stand for. Load makes one. It is safe for concurrent use.
type File[T any] struct {
	paths  []string
	every  time.Duration
	parse  func(contents [][]byte) (*T, error)
	told   func(err error)
	value  atomic.Pointer[T]
	looked atomic.Int64 // the time of the last look, in Unix nanoseconds

	mu      sync.Mutex // held while one caller looks
	tried   [sha256.Size]byte
	pending [sha256.Size]byte // what the last look has found

	status atomic.Pointer[Status]
}

// Status is the state of a File.
type Status struct {
	Loaded time.Time // when what is in force was read
	Err    error     // why the files, as they are now, are not in force; nil if they are
}

// Load reads the files. [File.Get] looks at them again if the last look was longer ago than every; it calls told, which can be nil,
// after each attempt to use what has changed.
func Load[T any](every time.Duration, parse func(contents [][]byte) (*T, error), told func(err error), paths ...string) (*File[T], error) {
	f := &File[T]{paths: paths, every: every, parse: parse, told: told}
	contents, digest, err := f.read()
	if err == nil {
		err = f.use(contents)
	}
	f.tried, f.pending = digest, digest
	f.looked.Store(time.Now().UnixNano())
	return f, err
}

// Get returns what is in force.
func (f *File[T]) Get() *T {
	if time.Since(time.Unix(0, f.looked.Load())) >= f.every && f.mu.TryLock() {
		f.look()
		f.looked.Store(time.Now().UnixNano())
		f.mu.Unlock()
	}
	return f.value.Load()
}

// Status returns the current state.
func (f *File[T]) Status() Status {
	f.Get()
	return *f.status.Load()
}

// look uses the files if they have changed. Of several files, one may be written a moment before the other: two looks must find the
// same.
func (f *File[T]) look() {
	contents, digest, err := f.read()
	settled := len(f.paths) == 1 || f.pending == digest
	f.pending = digest
	if !settled || digest == f.tried {
		return
	}
	f.tried = digest
	if err == nil {
		err = f.use(contents)
	}
	if err != nil {
		f.status.Store(&Status{f.status.Load().Loaded, err})
	}
	if f.told != nil {
		f.told(err)
	}
}

// read returns the contents of the files, and the digest of these or of the error.
func (f *File[T]) read() (contents [][]byte, digest [sha256.Size]byte, err error) {
	for _, path := range f.paths {
		content, err := regularfile.Read(path, maxSize)
		if _, named := errors.AsType[*fs.PathError](err); err != nil && !named {
			err = fmt.Errorf("%s: %w", path, err)
		}
		if err != nil { // such as a file that is missing while it is replaced
			return nil, sha256.Sum256([]byte(err.Error())), err
		}
		contents = append(contents, content)
	}
	return contents, sha256.Sum256(bytes.Join(contents, []byte{0})), nil
}

// use puts what the contents stand for in force.
func (f *File[T]) use(contents [][]byte) error {
	value, err := f.parse(contents)
	if err != nil {
		return fmt.Errorf("%s: %w", f.paths[0], err)
	}
	f.value.Store(value)
	f.status.Store(&Status{Loaded: time.Now()})
	return nil
}

// Authorities returns the certificates of a file in PEM form, which is read once.
func Authorities(file string) (*x509.CertPool, error) {
	content, err := regularfile.Read(file, maxSize)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s: must have certificates in PEM form", file)
	}
	return pool, nil
}
