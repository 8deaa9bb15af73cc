package weirredis

import (
	"testing"

	"github.com/weir-go/weir/store/internal/drill"
)

func TestSharedProcesses(t *testing.T) { drill.Processes(t, drillSubject()) }

func TestSharedHolders(t *testing.T) { drill.Holders(t, drillSubject()) }

func TestSharedFairness(t *testing.T) { drill.Fairness(t, drillSubject()) }
