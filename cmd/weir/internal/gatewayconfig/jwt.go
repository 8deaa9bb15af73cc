package gatewayconfig

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/keyfile"
)

// The algorithms of signatures, by the kind of key.
var (
	secretAlgorithms = []string{"HS256", "HS384", "HS512"}
	rsaAlgorithms    = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	ecAlgorithms     = []string{"ES256", "ES384", "ES512"}
	edAlgorithms     = []string{"EdDSA"}
	publicAlgorithms = slices.Concat(rsaAlgorithms, ecAlgorithms, edAlgorithms)
)

// Validate checks that there is one way to verify the token.
func (c JWTClaim) Validate() error {
	var p validate.Problems
	if c.Claim == "" {
		p.Add("Claim", nil, "must not be empty")
	}
	if c.Header != "" && !isToken(c.Header) {
		p.Add("Header", c.Header, "must be the name of a header")
	}
	ways := 0
	for _, is := range []bool{c.SecretFile != "", c.PublicKeyFile != "", c.JWKSFile != "", c.Unverified} {
		if is {
			ways++
		}
	}
	switch {
	case ways == 0:
		p.Add("", nil, "must have one of {SecretFile}, {PublicKeyFile} and {JWKSFile}, or {Unverified}: true to believe tokens that anybody can make")
	case ways > 1:
		p.Add("", nil, "must have only one of {SecretFile}, {PublicKeyFile}, {JWKSFile} and {Unverified}")
	}
	if c.Unverified {
		for name, set := range map[string]bool{"Algorithms": c.Algorithms != nil, "Issuer": c.Issuer != "", "Audience": c.Audience != "", "Leeway": c.Leeway != 0, "RequiredClaims": c.RequiredClaims != nil} {
			if set {
				p.Add(name, nil, "must be left out with {Unverified}: nothing of the token is checked")
			}
		}
	}
	for i, a := range c.Algorithms {
		if known := c.fitting(); ways == 1 && !slices.Contains(known, a) {
			p.Add(fmt.Sprintf("Algorithms[%d]", i), a, "must be one of %s", strings.Join(known, ", "))
		}
	}
	for i, name := range c.RequiredClaims {
		if name == "" {
			p.Add(fmt.Sprintf("RequiredClaims[%d]", i), nil, "must not be empty")
		}
	}
	p.NotNegative("Leeway", c.Leeway)
	return p.Err("gateway")
}

// fitting returns the algorithms that fit the kind of file.
func (c JWTClaim) fitting() []string {
	if c.SecretFile != "" {
		return secretAlgorithms
	}
	return publicAlgorithms
}

// finder returns the function that finds the claim in a request. The claim of a token that is not valid is "". If there are
// several lines of the header, it is [weirhttp.AmbiguousKey]: the server behind could take another one than the limiter.
func (c JWTClaim) finder() (func(r *http.Request) string, error) {
	header := http.CanonicalHeaderKey(cmp.Or(c.Header, DefaultTokenHeader))
	claim := c.unverified
	if !c.Unverified {
		v, err := c.verifier()
		if err != nil {
			return nil, err
		}
		claim = v.claim
	}
	return func(r *http.Request) string {
		lines := r.Header[header]
		if len(lines) > 1 {
			return weirhttp.AmbiguousKey
		}
		if len(lines) == 1 {
			if token := bearer(lines[0]); token != "" && len(token) <= maxToken {
				return claim(token)
			}
		}
		return ""
	}, nil
}

// maxToken bounds the work for a token.
const maxToken = 16 << 10

// bearer returns the token in a header, which can stand after the word Bearer.
func bearer(value string) string {
	scheme, token, found := strings.Cut(value, " ")
	if !found {
		return value
	}
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// unverified returns the claim of a token that is believed.
func (c JWTClaim) unverified(token string) string {
	claims := jwt.MapClaims{}
	if _, _, err := jwt.NewParser(jwt.WithJSONNumber()).ParseUnverified(token, claims); err != nil {
		return ""
	}
	return claimText(claims[c.Claim])
}

// claimText returns a claim as text; "" if it is neither text nor a number.
func claimText(claim any) string {
	switch v := claim.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	default:
		return ""
	}
}

// A verifier verifies tokens by the keys in a file.
type verifier struct {
	options JWTClaim
	file    *keyfile.File[keySet]
}

// A keySet has the keys of a version of the file, and the claims of tokens that they have verified.
type keySet struct {
	algorithms []string
	parser     *jwt.Parser
	find       func(t *jwt.Token) (any, error)

	mu       sync.Mutex
	verified map[string]verified // by token
}

// A verified is the claim of a token, which is valid until then.
type verified struct {
	claim string
	until time.Time
}

const (
	maxVerified = 1024            // tokens that are remembered, so that a token is not verified for each of several limiters
	lookAgain   = 5 * time.Second // how often the file is looked at
	rememberFor = time.Minute
)

func (c JWTClaim) verifier() (*verifier, error) {
	parse := jwks
	switch {
	case c.SecretFile != "":
		parse = secretKey
	case c.PublicKeyFile != "":
		parse = publicKey
	}
	file, err := keyfile.Load(lookAgain, func(contents [][]byte) (*keySet, error) {
		keys, err := parse(contents[0])
		if err != nil {
			return nil, err
		}
		if c.Algorithms != nil {
			keys.algorithms = slices.DeleteFunc(slices.Clone(keys.algorithms), func(a string) bool { return !slices.Contains(c.Algorithms, a) })
		}
		if len(keys.algorithms) == 0 {
			return nil, fmt.Errorf("its key fits none of the algorithms %s", strings.Join(c.Algorithms, ", "))
		}
		keys.verified = make(map[string]verified)
		keys.parser, keys.find = c.parser(keys.algorithms), refuseCritical(keys.find)
		return keys, nil
	}, nil, cmp.Or(c.SecretFile, c.PublicKeyFile, c.JWKSFile))
	return &verifier{c, file}, err
}

func (c JWTClaim) parser(algorithms []string) *jwt.Parser {
	options := []jwt.ParserOption{jwt.WithValidMethods(algorithms), jwt.WithLeeway(c.Leeway), jwt.WithJSONNumber()}
	if c.Issuer != "" {
		options = append(options, jwt.WithIssuer(c.Issuer))
	}
	if c.Audience != "" {
		options = append(options, jwt.WithAudience(c.Audience))
	}
	return jwt.NewParser(options...)
}

// refuseCritical returns find for tokens without critical header parameters: RFC 7515, 4.1.11, has every token refused
// that has one which is not understood, and none is.
func refuseCritical(find jwt.Keyfunc) jwt.Keyfunc {
	return func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errors.New("the token has critical header parameters")
		}
		return find(t)
	}
}

// complete reports whether the token has the claims that it must have.
func (c JWTClaim) complete(claims jwt.MapClaims) bool {
	return !slices.ContainsFunc(c.RequiredClaims, func(name string) bool { return claims[name] == nil })
}

// claim returns the claim of the token; "" if the token is not valid.
func (v *verifier) claim(token string) string {
	keys := v.file.Get()
	now := time.Now()
	if claim, ok := keys.remembered(token, now); ok {
		return claim
	}
	claims := jwt.MapClaims{}
	if _, err := keys.parser.ParseWithClaims(token, claims, keys.find); err != nil || !v.options.complete(claims) {
		return ""
	}
	claim := claimText(claims[v.options.Claim])
	until := now.Add(rememberFor)
	if end, err := claims.GetExpirationTime(); err == nil && end != nil && end.Add(v.options.Leeway).Before(until) {
		until = end.Add(v.options.Leeway)
	}
	keys.remember(token, verified{claim, until})
	return claim
}

func (k *keySet) remembered(token string, now time.Time) (claim string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found, ok := k.verified[token]
	return found.claim, ok && now.Before(found.until)
}

func (k *keySet) remember(token string, v verified) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.verified) >= maxVerified {
		clear(k.verified)
	}
	k.verified[token] = v
}

func secretKey(content []byte) (*keySet, error) {
	secret := []byte(strings.TrimRight(string(content), "\r\n"))
	if len(secret) == 0 {
		return nil, errors.New("the secret is empty")
	}
	return &keySet{algorithms: secretAlgorithms, find: func(*jwt.Token) (any, error) { return secret, nil }}, nil
}

func publicKey(content []byte) (*keySet, error) {
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("must have a public key or a certificate in PEM form")
	}
	var key crypto.PublicKey
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = c.PublicKey
		}
	default:
		err = fmt.Errorf("must have a PUBLIC KEY or a CERTIFICATE, found %s", block.Type)
	}
	if err != nil {
		return nil, err
	}
	algorithms, err := algorithmsOf(key)
	return &keySet{algorithms: algorithms, find: func(*jwt.Token) (any, error) { return key, nil }}, err
}

// algorithmsOf returns the algorithms that the key is for.
func algorithmsOf(key crypto.PublicKey) ([]string, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return rsaAlgorithms, nil
	case *ecdsa.PublicKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return ecAlgorithms[:1], nil
		case 384:
			return ecAlgorithms[1:2], nil
		case 521:
			return ecAlgorithms[2:], nil
		}
	case ed25519.PublicKey:
		return edAlgorithms, nil
	}
	return nil, fmt.Errorf("no algorithm of signatures is known for a %T", key)
}

func jwks(content []byte) (*keySet, error) {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(content, &set); err != nil {
		return nil, fmt.Errorf("must be a set of keys, RFC 7517: %w", err)
	}
	var usable []jose.JSONWebKey
	var algorithms []string
	for _, k := range set.Keys {
		fit, err := algorithmsOf(k.Key)
		if err != nil || k.Use != "" && k.Use != "sig" {
			continue // also a secret: a set of public keys has none
		}
		usable = append(usable, k)
		algorithms = append(algorithms, fit...)
	}
	if len(usable) == 0 {
		return nil, errors.New("the set has no public key for signatures")
	}
	find := func(t *jwt.Token) (any, error) {
		id, _ := t.Header["kid"].(string)
		var keys jwt.VerificationKeySet
		for _, k := range usable {
			fit, _ := algorithmsOf(k.Key)
			if (id == "" || k.KeyID == id) && (k.Algorithm == "" || k.Algorithm == t.Method.Alg()) && slices.Contains(fit, t.Method.Alg()) {
				keys.Keys = append(keys.Keys, k.Key.(jwt.VerificationKey))
			}
		}
		if len(keys.Keys) == 0 {
			return nil, errors.New("no key of the set fits")
		}
		return keys, nil
	}
	return &keySet{algorithms: algorithms, find: find}, nil
}
