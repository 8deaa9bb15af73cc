package admission

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
)

const (
	maxKeyLength = 128
	digestPrefix = "sha256:"
)

// AmbiguousKey is the key of a request with several values where there must be one. [Call.Admit] rejects such a request, and also
// that of a client that sends this text.
const AmbiguousKey = digestPrefix + "ambiguous"

// KeyOf returns the key of a request with these values: "" without a value, and AmbiguousKey with more than one.
func KeyOf(values []string) string {
	switch len(values) {
	case 0:
		return ""
	case 1:
		return BoundedKey(values[0])
	default:
		return AmbiguousKey
	}
}

// BoundedKey returns s, or its digest if s is longer than maxKeyLength. A string that looks like a digest is replaced,
// too: otherwise a client could use the key of another by sending its digest. The digest is the same on every machine,
// because several machines can share the state of a key in a store.
func BoundedKey(s string) string {
	if len(s) <= maxKeyLength && !strings.HasPrefix(s, digestPrefix) || s == AmbiguousKey {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	var text [len(digestPrefix) + 2*sha256.Size]byte
	copy(text[:], digestPrefix)
	hex.Encode(text[len(digestPrefix):], sum[:])
	return string(text[:])
}

// MustNotBeNil panics with a [weir.OptionsError] of pkg if an argument of a function for route registration is nil.
func MustNotBeNil(pkg, name string, argument any) {
	if isnil.Value(argument) {
		var problems validate.Problems
		problems.Add(name, nil, "must not be nil")
		panic(problems.Err(pkg))
	}
}

// Subject returns f with a bound on its keys. It panics if f is nil.
func Subject[K ~func(R) string, R any](pkg string, f K) K {
	MustNotBeNil(pkg, "f", f)
	return func(r R) string { return BoundedKey(f(r)) }
}

// Composite returns the key function that joins keys. The length of each part stands before the part, so that different parts never
// make the same key. It panics if one of the keys is nil.
func Composite[K ~func(R) string, R any](pkg string, keys []K) K {
	for i, key := range keys {
		MustNotBeNil(pkg, fmt.Sprintf("keys[%d]", i), key)
	}
	keys = slices.Clone(keys)
	return func(r R) string {
		text := make([]byte, 0, maxKeyLength)
		for _, key := range keys {
			part := key(r)
			if part == AmbiguousKey {
				return part
			}
			text = strconv.AppendInt(text, int64(len(part)), 10)
			text = append(text, ':')
			text = append(text, part...)
		}
		return BoundedKey(string(text))
	}
}

// DefaultMaxPartitions is the bound on the number of keys of [PerKey].
const DefaultMaxPartitions = 100_000

// PerKey returns a limiter that has a limiter of factory for each key. A MaxPartitions of 0 is [DefaultMaxPartitions];
// with -1 the number of keys is not bounded. pkg is the package of the error.
func PerKey(pkg string, factory limiter.Factory[string], o *limiter.PartitionedOptions) (*limiter.PartitionedLimiter[string, string], error) {
	if factory == nil {
		var problems validate.Problems
		problems.Add("factory", nil, "must not be nil")
		return nil, problems.Err(pkg)
	}
	var options limiter.PartitionedOptions
	if o != nil {
		options = *o
	}
	options.MaxPartitions = cmp.Or(options.MaxPartitions, DefaultMaxPartitions)
	return limiter.NewPartitioned(func(key string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: key, New: factory}
	}, &options)
}
