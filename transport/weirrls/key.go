package weirrls

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// maxKey bounds the keys of counters in bytes, because clients choose the values of descriptors.
const maxKey = 256

// appendKey appends the key of the counter of a descriptor: the entries as key=value, separated by commas. Keys of
// different entries differ, because a backslash stands before each character that could be mistaken.
func appendKey(buf []byte, entries []*common.RateLimitDescriptor_Entry) []byte {
	for i, e := range entries {
		buf = appendEntry(buf, i > 0, e.GetKey(), e.GetValue())
	}
	return buf
}

// appendSharedKey is appendKey for a descriptor that was matched with shares: of the values that a rule with
// ShareThreshold matches, all have the same key.
func (d *domain) appendSharedKey(buf []byte, entries []*common.RateLimitDescriptor_Entry, scratch *[]byte) []byte {
	at := &d.level
	for i, e := range entries {
		value := e.GetValue()
		r, byPattern := at.find(e.GetKey(), value, scratch)
		if r == nil {
			break // cannot happen: the descriptor was matched
		}
		if byPattern && r.shareThreshold {
			value = r.sharedValue(e.GetKey())
		}
		buf = appendEntry(buf, i > 0, e.GetKey(), value)
		at = &r.level
	}
	return buf
}

func appendEntry(buf []byte, comma bool, key, value string) []byte {
	if comma {
		buf = append(buf, ',')
	}
	buf = appendEscaped(buf, key, `\,=`)
	buf = append(buf, '=')
	return appendEscaped(buf, value, `\,`)
}

// appendEscaped appends text with a backslash before each of the special characters.
func appendEscaped(buf []byte, text, special string) []byte {
	for {
		i := strings.IndexAny(text, special)
		if i < 0 {
			return append(buf, text...)
		}
		buf = append(buf, text[:i]...)
		buf = append(buf, '\\', text[i])
		text = text[i+1:]
	}
}

// bounded returns the key, or its hash if it is too long. A hash is no other descriptor's key, because it has neither = nor
// a comma.
func bounded(key []byte) string {
	if len(key) <= maxKey {
		return string(key)
	}
	sum := sha256.Sum256(key)
	return "sha256:" + hex.EncodeToString(sum[:])
}
