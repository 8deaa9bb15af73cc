package heavyhitters

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// keptText is how many bytes are kept of a key that is a string: enough for Cut to see that there were more.
const keptText = MaxText + 1

// isText reports whether keys of type K are strings.
func isText[K comparable]() bool { return reflect.TypeFor[K]().Kind() == reflect.String }

// shortened returns the part of a key by which a place knows it, together with the hash of the whole key: of a string,
// the first bytes.
func (s *sketch[K]) shortened(key K) K {
	if s.isText {
		if t := (*string)(unsafe.Pointer(&key)); len(*t) > keptText {
			*t = (*t)[:keptText]
		}
	}
	return key
}

// keepable returns a shortened key, copied if otherwise the whole key would stay in memory.
func (s *sketch[K]) keepable(short, whole K) K {
	if s.isText && short != whole {
		t := (*string)(unsafe.Pointer(&short))
		*t = strings.Clone(*t)
	}
	return short
}

// Text returns the key as [fmt.Sprint] writes it, cut by [Cut].
func (c Count[K]) Text() string { return Cut(fmt.Sprint(c.Key)) }

// Cut returns a text of MaxText bytes or less that begins like t. If it is not the whole of t, it ends with "…".
func Cut(t string) string {
	if len(t) <= MaxText {
		return t
	}
	const ellipsis = "…"
	end := MaxText - len(ellipsis)
	for least := end - utf8.UTFMax; end > least && !utf8.RuneStart(t[end]); {
		end--
	}
	return t[:end] + ellipsis
}
