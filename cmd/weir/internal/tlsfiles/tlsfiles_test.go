package tlsfiles

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newPair(t *testing.T, name string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func TestPair(t *testing.T) {
	dir := t.TempDir()
	certificateFile, keyFile := filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key")
	put := func(file string, content []byte) { require.NoError(t, os.WriteFile(file, content, 0o600)) }
	_, err := Load(certificateFile, keyFile)
	require.ErrorContains(t, err, certificateFile)
	one, oneKey := newPair(t, "one")
	two, twoKey := newPair(t, "two")
	put(certificateFile, one)
	put(keyFile, twoKey)
	_, err = Load(certificateFile, keyFile)
	require.ErrorContains(t, err, "does not match")
	put(keyFile, oneKey)
	p, err := Load(certificateFile, keyFile)
	require.NoError(t, err)
	name := func() string {
		c, err := p.GetCertificate(nil)
		require.NoError(t, err)
		return c.Leaf.Subject.CommonName
	}
	assert.Equal(t, "one", name())
	assert.WithinDuration(t, time.Now().Add(time.Hour), p.Status().Expires, time.Minute)

	assert.False(t, p.look(), "nothing has changed")
	put(certificateFile, two)
	assert.False(t, p.look(), "the key may be written a moment later")
	put(keyFile, twoKey)
	assert.False(t, p.look(), "this must be seen twice")
	assert.True(t, p.look())
	require.NoError(t, p.Status().Err)
	assert.Equal(t, "two", name())

	require.NoError(t, os.Remove(keyFile))
	assert.False(t, p.look())
	assert.True(t, p.look())
	require.ErrorContains(t, p.Status().Err, keyFile)
	assert.False(t, p.look(), "the same error is told once")
	assert.Equal(t, "two", name(), "the old one stays in force")
	put(keyFile, twoKey)
	assert.False(t, p.look())
	assert.True(t, p.look(), "what was in force is there again")
	assert.NoError(t, p.Status().Err)
}

func TestPair_Watch(t *testing.T) {
	dir := t.TempDir()
	certificateFile, keyFile := filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key")
	write := func(name string) {
		certificate, key := newPair(t, name)
		require.NoError(t, os.WriteFile(certificateFile, certificate, 0o600))
		require.NoError(t, os.WriteFile(keyFile, key, 0o600))
	}
	write("one")
	p, err := Load(certificateFile, keyFile)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	changed, ended := make(chan Status, 10), make(chan struct{})
	go func() {
		p.Watch(ctx, time.Millisecond, func(s Status) { changed <- s })
		close(ended)
	}()
	write("two")
	for s := range changed {
		if s.Err == nil {
			break
		}
	}
	c, _ := p.GetCertificate(nil)
	assert.Equal(t, "two", c.Leaf.Subject.CommonName)
	cancel()
	<-ended
}
