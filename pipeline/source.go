package pipeline

// A Source says where something happened. Strategy is empty if it happened to the pipeline as a whole.
type Source struct{ Pipeline, Instance, Strategy string }

// String returns the parts that are not empty, separated by slashes: "orders/eu-1/RateLimiter", "orders/RateLimiter",
// "orders". It is "" for the zero Source.
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
