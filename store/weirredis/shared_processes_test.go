package weirredis

import (
	"testing"

	"github.com/weir-go/weir/store/internal/drill"
)

func TestSharedProcesses(t *testing.T) { drill.Processes(t, drillSubject()) }
