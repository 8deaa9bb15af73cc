package weirpostgres

import (
	"testing"

	"github.com/weir-go/weir/store/internal/drill"
)

func TestSharedProcesses(t *testing.T) {
	s := drillSubject()
	t.Run("shares", func(t *testing.T) { drill.SharesAreExact(t, s) })
	t.Run("refills", func(t *testing.T) { drill.RefillsAreExact(t, s) })
	t.Run("holds", func(t *testing.T) { drill.NeverMoreIsHeld(t, s) })
	t.Run("a killed holder", func(t *testing.T) { drill.Retried(t, func() { drill.AKilledHolderKeepsItsPermitForTheTTL(t, s) }) })
	t.Run("a holder", func(t *testing.T) { drill.Retried(t, func() { drill.AHolderKeepsItsPermit(t, s) }) })
	t.Run("a stopped holder", func(t *testing.T) { drill.Retried(t, func() { drill.AStoppedHolderLearnsThatItHasLostItsLease(t, s) }) })
	t.Run("a share each", func(t *testing.T) { drill.Retried(t, func() { drill.WaitingInstancesGetTheirShare(t, s) }) })
	t.Run("a rolling deployment", func(t *testing.T) { drill.ARollingDeploymentNeverGrantsMore(t, s) })
}
