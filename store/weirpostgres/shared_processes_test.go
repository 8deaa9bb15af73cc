package weirpostgres

import (
	"testing"

	"github.com/weir-go/weir/store/internal/drill"
)

func TestSharedProcesses(t *testing.T) {
	s := drillSubject()
	t.Run("shares", func(t *testing.T) { drill.Shares(t, s) })
	t.Run("refills", func(t *testing.T) { drill.Refills(t, s) })
	t.Run("holds", func(t *testing.T) { drill.HeldWithinLimit(t, s) })
	t.Run("a killed holder", func(t *testing.T) { drill.Retried(t, func() { drill.KilledHolder(t, s) }) })
	t.Run("a holder", func(t *testing.T) { drill.Retried(t, func() { drill.LivingHolder(t, s) }) })
	t.Run("a stopped holder", func(t *testing.T) { drill.Retried(t, func() { drill.StoppedHolder(t, s) }) })
	t.Run("a share each", func(t *testing.T) { drill.Retried(t, func() { drill.FairShares(t, s) }) })
	t.Run("a rolling deployment", func(t *testing.T) { drill.RollingDeployment(t, s) })
}
