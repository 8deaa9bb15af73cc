package explain

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/store"
)

// explainStore describes the store of a limiter.
func explainStore(m *model.Store) string {
	if m == nil {
		return ""
	}
	words := []string{"; in the store " + m.Name}
	switch m.Outage {
	case store.FailOpen:
		words = append(words, "grants everything while that is away")
	case store.FallBackLocally:
		words = append(words, percent(m.LocalShare)+" of the limit in the process while that is away")
	default:
		words = append(words, "rejects while that is away")
	}
	if m.Block > 1 {
		words = append(words, fmt.Sprintf("takes up to %d permits at once", m.Block))
	}
	if m.CacheRejections {
		words = append(words, "remembers rejections")
	}
	if m.NoCoalescing {
		words = append(words, "asks for each call alone")
	}
	if m.Generation > 0 {
		words = append(words, fmt.Sprintf("generation %d", m.Generation))
	}
	if m.LeaseTTL > 0 {
		words = append(words, fmt.Sprintf("leases of an instance that has died end after %s", briefly(m.LeaseTTL)))
	}
	return strings.Join(words, ", ")
}
