package weirredis

import (
	"testing"

	"github.com/weir-go/weir/store/internal/drill"
)

func TestSharedConformance(t *testing.T) {
	drill.Wide(t, drill.AtOnce, func() {
		s := drillSubject()
		drill.Conformance(t, s, s.Place(t), tolerance, drill.Variants()...)
	})
}
