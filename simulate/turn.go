package simulate

import "context"

type run struct {
	openStores
	scenario Scenario
	onClose  []func() error
	assumed  map[string]bool
}
type request struct {
	key  string
	cost int
}
type task struct{ request *request }
type keyCounts struct{ offered, admitted, rejected int64 }

func taskOf(context.Context) *task { return nil }
