package dashboard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
)

// A KeyHash hashes the keys of limiters with a random secret of its own. Without a secret, the hash of an address would
// tell the address to everyone who tries all addresses. The zero KeyHash is not usable; make one with [NewKeyHash]. A
// KeyHash is safe for concurrent use.
type KeyHash struct{ secret []byte }

// NewKeyHash returns a KeyHash with a new secret.
func NewKeyHash() *KeyHash {
	h := &KeyHash{secret: make([]byte, 32)}
	_, _ = rand.Read(h.secret) // it never fails
	return h
}

// Hash returns the hash of a key, such as "#2c1b39af00a3".
func (h *KeyHash) Hash(key string) string {
	m := hmac.New(sha256.New, h.secret)
	_, _ = m.Write([]byte(key))
	return "#" + hex.EncodeToString(m.Sum(nil)[:6])
}
