package pipeline

// Source says where something happened. Strategy is empty where it happened to
// the pipeline as a whole.
type Source struct{ Pipeline, Instance, Strategy string }

// String returns the three with slashes between, "(null)" for what is empty:
// "orders/eu-1/RateLimiter".
func (s Source) String() string {
	return orNull(s.Pipeline) + "/" + orNull(s.Instance) + "/" + orNull(s.Strategy)
}

func orNull(s string) string {
	if s == "" {
		return "(null)"
	}
	return s
}
