package pipeline

import "strings"

// Source says where something happened. Strategy is empty where it happened to
// the pipeline as a whole.
type Source struct{ Pipeline, Instance, Strategy string }

// String returns the parts that are not empty with slashes between them:
// "orders/eu-1/RateLimiter", "orders/RateLimiter", "orders". It is "" for the zero
// Source.
func (s Source) String() string {
	if s.Instance == "" {
		return joinParts(s.Pipeline, s.Strategy)
	}
	return joinParts(joinParts(s.Pipeline, s.Instance), s.Strategy)
}

func joinParts(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	default:
		return a + "/" + b
	}
}

// prefixed returns the text "prefix name: ", without the name and its space if the name is empty.
func prefixed(prefix, name string) string {
	return strings.TrimSuffix(prefix+" "+name, " ") + ": "
}
