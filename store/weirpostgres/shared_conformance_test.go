package weirpostgres

import (
	"strings"
	"testing"

	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store/internal/drill"
	"github.com/weir-go/weir/tools/testserver"
)

func TestSharedConformance(t *testing.T) {
	drill.Wide(t, drill.AtOnce, func() {
		s := drillSubject()
		drill.Conformance(t, s, withoutDisk(s.Place(t)), tolerance, drill.Variants()...)
	})
}

// Apart from the others, because these are slower.
func TestSharedConformanceOtherwise(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long, and little is different")
	}
	drill.Wide(t, drill.AtOnce, func() {
		s := drillSubject()
		drill.Conformance(t, s, bouncerPlace(t), tolerance, drill.Variant{
			Name: "PgBouncer", Instances: 1, Kinds: []limitertest.Kind{limitertest.FixedWindow, limitertest.Concurrency},
		})
	})
}

// How long a disk takes is not what the cases are about, and a hundred of them ask at once.
func withoutDisk(place string) string {
	return strings.Replace(place, " ", "&synchronous_commit=off ", 1)
}

// bouncerPlace is one behind PgBouncer in transaction mode.
func bouncerPlace(t testing.TB) string {
	t.Helper()
	server := postgres(t)
	_, schema := newPlace(t, server)
	return testserver.NewPgBouncer(t, server).URL + "&default_query_exec_mode=exec " + schema
}

// Listen does not work through it, which the store finds out by itself.
func TestSharedPollingThroughPgBouncer(t *testing.T) {
	s := drillSubject()
	place := bouncerPlace(t)
	s.Place = func(testing.TB) string { return place }
	drill.ReleaseWakes(t, s, false)
	drill.ListenUnsupported(t, s)
}
