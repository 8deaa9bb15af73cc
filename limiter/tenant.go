package limiter

import "context"

// A tenantContext is the key of a Tenant in a context.
type tenantContext struct{}

// WithTenant returns a context for calls that wait on behalf of t, if the limiter's queue has the order [Fair]:
//
//	ctx = limiter.WithTenant(ctx, limiter.Tenant{Key: customer.ID, Weight: customer.Seats})
//	lease, err := tokens.Acquire(ctx, estimate)
func WithTenant(ctx context.Context, t Tenant) context.Context {
	return context.WithValue(ctx, tenantContext{}, t)
}

// TenantOf returns the tenant of a context that [WithTenant] has returned, or one made from it; otherwise the zero Tenant.
func TenantOf(ctx context.Context) Tenant {
	t, _ := ctx.Value(tenantContext{}).(Tenant)
	return t
}
