package simulate

import "context"

// A Setup is what a [Config] can use: the instance that it defines, and stores that all instances share.
type Setup struct {
	// Instance is the number of the instance, from 0.
	Instance int

	run *run
}

// Key returns the key of the simulated request that ctx belongs to, and "" outside of a simulation. It is for
// [github.com/weir-go/weir/reload.Kinds.RegisterKey].
func Key(ctx context.Context) string {
	if t := taskOf(ctx); t != nil {
		return t.request.key
	}
	return ""
}

// Cost returns how many permits the simulated request that ctx belongs to takes, and 1 outside of a simulation. It is for
// [github.com/weir-go/weir/reload.Kinds.RegisterPermits].
func Cost(ctx context.Context) int {
	if t := taskOf(ctx); t != nil {
		return t.request.cost
	}
	return 1
}
