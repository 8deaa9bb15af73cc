package gatewayconfig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/transport/weirhttp"
)

func sign(t *testing.T, m jwt.SigningMethod, key any, claims jwt.MapClaims, kid string) string {
	token := jwt.NewWithClaims(m, claims)
	if kid != "" {
		token.Header["kid"] = kid
	}
	text, err := token.SignedString(key)
	require.NoError(t, err)
	return text
}

func write(t *testing.T, path string, content []byte) string {
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func pemOf(t *testing.T, key crypto.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// find returns what c finds in a request with that token.
func find(t *testing.T, c JWTClaim, token string) string {
	require.NoError(t, c.Validate())
	f, err := c.finder()
	require.NoError(t, err)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return f(r)
}

func TestJWTClaim(t *testing.T) {
	dir := t.TempDir()
	secret := []byte("a secret that is long enough for HS256")
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	edPublic, edKey, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	rsaPEM := pemOf(t, &rsaKey.PublicKey)
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: &ecKey.PublicKey, KeyID: "ec", Use: "sig", Algorithm: "ES256"},
		{Key: edPublic, KeyID: "ed"},
		{Key: &rsaKey.PublicKey, KeyID: "enc", Use: "enc"},
		{Key: secret, KeyID: "oct"},
	}})
	require.NoError(t, err)
	bySecret := JWTClaim{Claim: "sub", SecretFile: write(t, filepath.Join(dir, "secret"), append(secret, '\n'))}
	byRSA := JWTClaim{Claim: "sub", PublicKeyFile: write(t, filepath.Join(dir, "rsa.pem"), rsaPEM)}
	byEC := JWTClaim{Claim: "sub", PublicKeyFile: write(t, filepath.Join(dir, "ec.pem"), pemOf(t, &ecKey.PublicKey))}
	bySet := JWTClaim{Claim: "sub", JWKSFile: write(t, filepath.Join(dir, "jwks.json"), set)}
	strict := bySecret
	strict.Issuer, strict.Audience, strict.Leeway, strict.Algorithms = "me", "you", time.Minute, []string{"HS384"}

	ends := bySecret
	ends.RequiredClaims = []string{"exp"}

	ada := jwt.MapClaims{"sub": "ada"}
	now := time.Now()
	critical := jwt.NewWithClaims(jwt.SigningMethodHS256, ada)
	critical.Header["crit"], critical.Header["urn:example:once"] = []string{"urn:example:once"}, true
	withCritical, err := critical.SignedString(secret)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		claim JWTClaim
		token string
		want  string
	}{
		"secret":                      {bySecret, sign(t, jwt.SigningMethodHS256, secret, ada, ""), "ada"},
		"another secret":              {bySecret, sign(t, jwt.SigningMethodHS256, []byte("another"), ada, ""), ""},
		"number":                      {bySecret, sign(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{"sub": int64(12345678901234567)}, ""), "12345678901234567"},
		"list":                        {bySecret, sign(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{"sub": []string{"a"}}, ""), ""},
		"no such claim":               {bySecret, sign(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{"user": "ada"}, ""), ""},
		"expired":                     {bySecret, sign(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{"sub": "ada", "exp": now.Add(-time.Second).Unix()}, ""), ""},
		"not yet":                     {bySecret, sign(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{"sub": "ada", "nbf": now.Add(time.Hour).Unix()}, ""), ""},
		"none":                        {bySecret, sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, ada, ""), ""},
		"none for RSA":                {byRSA, sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, ada, ""), ""},
		"RSA":                         {byRSA, sign(t, jwt.SigningMethodRS256, rsaKey, ada, ""), "ada"},
		"PSS":                         {byRSA, sign(t, jwt.SigningMethodPS512, rsaKey, ada, ""), "ada"},
		"the public key as a secret":  {byRSA, sign(t, jwt.SigningMethodHS256, rsaPEM, ada, ""), ""},
		"EC":                          {byEC, sign(t, jwt.SigningMethodES256, ecKey, ada, ""), "ada"},
		"EC by a set":                 {bySet, sign(t, jwt.SigningMethodES256, ecKey, ada, "ec"), "ada"},
		"EC without its name":         {bySet, sign(t, jwt.SigningMethodES256, ecKey, ada, ""), "ada"},
		"EdDSA by a set":              {bySet, sign(t, jwt.SigningMethodEdDSA, edKey, ada, "ed"), "ada"},
		"another name":                {bySet, sign(t, jwt.SigningMethodEdDSA, edKey, ada, "ec"), ""},
		"a key for encryption":        {bySet, sign(t, jwt.SigningMethodRS256, rsaKey, ada, "enc"), ""},
		"a secret in a public set":    {bySet, sign(t, jwt.SigningMethodHS256, secret, ada, "oct"), ""},
		"strict":                      {strict, sign(t, jwt.SigningMethodHS384, secret, jwt.MapClaims{"sub": "ada", "iss": "me", "aud": "you", "exp": now.Add(-30 * time.Second).Unix()}, ""), "ada"},
		"another algorithm":           {strict, sign(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{"sub": "ada", "iss": "me", "aud": "you"}, ""), ""},
		"another issuer":              {strict, sign(t, jwt.SigningMethodHS384, secret, jwt.MapClaims{"sub": "ada", "iss": "him", "aud": "you"}, ""), ""},
		"another audience":            {strict, sign(t, jwt.SigningMethodHS384, secret, jwt.MapClaims{"sub": "ada", "iss": "me", "aud": "him"}, ""), ""},
		"critical parameters":         {bySecret, withCritical, ""},
		"no end, as it need not":      {bySecret, sign(t, jwt.SigningMethodHS256, secret, ada, ""), "ada"},
		"no end, as it must":          {ends, sign(t, jwt.SigningMethodHS256, secret, ada, ""), ""},
		"null is no end":              {ends, sign(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{"sub": "ada", "exp": nil}, ""), ""},
		"an end":                      {ends, sign(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{"sub": "ada", "exp": now.Add(time.Hour).Unix()}, ""), "ada"},
		"garbage":                     {bySecret, "a.b.c", ""},
		"no token":                    {bySecret, "", ""},
		"endless":                     {bySecret, strings.Repeat("a", maxToken) + ".b.c", ""},
		"unverified":                  {JWTClaim{Claim: "sub", Unverified: true}, sign(t, jwt.SigningMethodHS256, []byte("?"), ada, ""), "ada"},
		"unverified garbage":          {JWTClaim{Claim: "sub", Unverified: true}, "a.b.c", ""},
		"unverified and out of time":  {JWTClaim{Claim: "sub", Unverified: true}, sign(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{"sub": "ada", "exp": 1}, ""), "ada"},
		"unverified without a method": {JWTClaim{Claim: "sub", Unverified: true}, sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, ada, ""), "ada"},
	} {
		assert.Equal(t, c.want, find(t, c.claim, c.token), name)
	}
}

func TestJWTClaim_Header(t *testing.T) {
	f, err := JWTClaim{Claim: "sub", Unverified: true, Header: "x-token"}.finder()
	require.NoError(t, err)
	token := sign(t, jwt.SigningMethodHS256, []byte("?"), jwt.MapClaims{"sub": "ada"}, "")
	for value, want := range map[string]string{
		token: "ada", "bearer " + token: "ada", "Bearer  " + token + " ": "ada", "Basic " + token: "", "": "",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Token", value)
		assert.Equal(t, want, f(r), value)
	}
	assert.Empty(t, f(httptest.NewRequest(http.MethodGet, "/", nil)))

	// The server behind can take the second token.
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header["X-Token"] = []string{"Bearer " + sign(t, jwt.SigningMethodHS256, []byte("?"), jwt.MapClaims{"sub": "made up"}, ""), "Bearer " + token}
	assert.Equal(t, weirhttp.AmbiguousKey, f(r))
}

func TestJWTClaim_BadFiles(t *testing.T) {
	dir := t.TempDir()
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})
	small, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	require.NoError(t, err)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	path := func(content string) string {
		f, err := os.CreateTemp(dir, "")
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return write(t, f.Name(), []byte(content))
	}
	for name, c := range map[string]struct {
		claim   JWTClaim
		message string
	}{
		"missing":       {JWTClaim{SecretFile: filepath.Join(dir, "missing")}, "no such file"},
		"directory":     {JWTClaim{SecretFile: dir}, "regular file"},
		"empty secret":  {JWTClaim{SecretFile: path("\n")}, "the secret is empty"},
		"no PEM":        {JWTClaim{PublicKeyFile: path("hello")}, "must have a public key or a certificate in PEM form"},
		"private":       {JWTClaim{PublicKeyFile: path(string(private))}, "found PRIVATE KEY"},
		"unknown curve": {JWTClaim{PublicKeyFile: path(string(pemOf(t, &small.PublicKey)))}, "no algorithm"},
		"other kind":    {JWTClaim{PublicKeyFile: path(string(pemOf(t, &rsaKey.PublicKey))), Algorithms: []string{"ES256"}}, "fits none of the algorithms ES256"},
		"no JSON":       {JWTClaim{JWKSFile: path("{")}, "RFC 7517"},
		"empty set":     {JWTClaim{JWKSFile: path(`{"keys": []}`)}, "no public key"},
		"huge":          {JWTClaim{JWKSFile: path(strings.Repeat(" ", 1<<20+1))}, "large"},
	} {
		_, err := c.claim.finder()
		assert.ErrorContains(t, err, c.message, name)
	}
}

// New keys are used a few seconds after the file has changed; a file that is not valid changes nothing.
func TestJWTClaim_FileChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := write(t, filepath.Join(t.TempDir(), "secret"), []byte("first"))
		f, err := JWTClaim{Claim: "sub", SecretFile: path}.finder()
		require.NoError(t, err)
		ask := func(secret string) string {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Authorization", sign(t, jwt.SigningMethodHS256, []byte(secret), jwt.MapClaims{"sub": secret}, ""))
			return f(r)
		}
		assert.Equal(t, "first", ask("first"))
		write(t, path, nil)
		time.Sleep(lookAgain)
		assert.Equal(t, "first", ask("first"))
		write(t, path, []byte("the second"))
		assert.Empty(t, ask("the second"), "it was looked at just now")
		time.Sleep(lookAgain)
		assert.Equal(t, "the second", ask("the second"))
		assert.Empty(t, ask("first"), "a token that was verified by keys that are gone")
		require.NoError(t, os.Remove(path))
		time.Sleep(lookAgain)
		assert.Equal(t, "the second", ask("the second"))
	})
}

// A token that was verified is not believed for longer than it says.
func TestJWTClaim_Expires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := write(t, filepath.Join(t.TempDir(), "secret"), []byte("first"))
		f, err := JWTClaim{Claim: "sub", SecretFile: path}.finder()
		require.NoError(t, err)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", sign(t, jwt.SigningMethodHS256, []byte("first"), jwt.MapClaims{"sub": "ada", "exp": time.Now().Add(2 * time.Second).Unix()}, ""))
		for range 2 {
			assert.Equal(t, "ada", f(r))
		}
		time.Sleep(3 * time.Second)
		assert.Empty(t, f(r))
	})
}

func TestKeySet_RememberIsBounded(t *testing.T) {
	k := &keySet{verified: make(map[string]verified)}
	for i := range 3 * maxVerified {
		k.remember(strings.Repeat("a", i), verified{})
	}
	assert.LessOrEqual(t, len(k.verified), maxVerified)
}
