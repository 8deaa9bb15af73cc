// Package tlsfiles has the certificate of a listener, which is read again when its files change.
package tlsfiles

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A Pair is a certificate and its key in two files. Load makes one. It is safe for concurrent use.
type Pair struct {
	certificateFile, keyFile string
	inForce                  atomic.Pointer[tls.Certificate]

	mu      sync.Mutex
	status  Status
	loaded  [sha256.Size]byte // the digest of the files that were tried last
	pending [sha256.Size]byte // the digest of what the files had at the last look
}

// Status is the state of a Pair.
type Status struct {
	Certificate string    // its file
	Loaded      time.Time // when the certificate in force was read
	Expires     time.Time // when the certificate in force expires
	Err         error     // why the files, as they are now, are not in force; nil if they are
}

// Load reads both files.
func Load(certificateFile, keyFile string) (*Pair, error) {
	p := &Pair{certificateFile: certificateFile, keyFile: keyFile}
	certificate, key, digest, err := p.read()
	if err == nil {
		err = p.use(certificate, key)
	}
	if err != nil {
		return nil, err
	}
	p.loaded, p.pending = digest, digest
	return p, nil
}

// GetCertificate is for [tls.Config].
func (p *Pair) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return p.inForce.Load(), nil
}

// Status returns the current state.
func (p *Pair) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// Watch looks at the files every interval until ctx ends, and calls changed after each attempt to use what has changed,
// with the error if the old certificate stays in force. The same error is not told again.
func (p *Pair) Watch(ctx context.Context, interval time.Duration, changed func(Status)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if p.look() {
				changed(p.Status())
			}
		}
	}
}

// look reads the files, and uses them if they differ from those in force and two looks have found the same: one of
// the files may be written a moment before the other. It reports whether there is something to tell.
func (p *Pair) look() (tell bool) {
	certificate, key, digest, err := p.read()
	if err != nil { // such as a file that is missing while it is replaced
		digest = sha256.Sum256([]byte(err.Error()))
	}
	settled := p.pending == digest
	p.pending = digest
	if !settled || digest == p.loaded {
		return false
	}
	p.loaded = digest
	if err == nil {
		err = p.use(certificate, key)
	}
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.status.Err = err
	}
	return true
}

// read returns the content of both files and its digest.
func (p *Pair) read() (certificate, key []byte, digest [sha256.Size]byte, err error) {
	if certificate, err = os.ReadFile(p.certificateFile); err == nil {
		key, err = os.ReadFile(p.keyFile)
	}
	if err == nil {
		digest = sha256.Sum256(bytes.Join([][]byte{certificate, key}, []byte{0}))
	}
	return certificate, key, digest, err
}

// use puts a certificate in force.
func (p *Pair) use(certificate, key []byte) error {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", p.certificateFile, p.keyFile, err)
	}
	p.inForce.Store(&pair)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = Status{Certificate: p.certificateFile, Loaded: time.Now(), Expires: pair.Leaf.NotAfter}
	return nil
}
