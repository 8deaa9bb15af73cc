package weirredis

import (
	"testing"

	"github.com/weir-go/weir/store/internal/drill"
)

func TestSharedConformance(t *testing.T) {
	drill.Wide(t, 80, func() {
		s := drillSubject()
		variants := drill.Variants()
		if !testing.Short() {
			variants = append(variants, drill.NotCoalesced())
		}
		drill.Conformance(t, s, s.Place(t), tolerance, variants...)
	})
}
