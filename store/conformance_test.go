package store_test

import (
	"testing"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/drill"
	"github.com/weir-go/weir/store/storetest"
)

func TestConformance(t *testing.T) {
	drill.Conformance(t, store.Options{}, func(testing.TB) backend.Backend { return storetest.NewMemory() })
}
