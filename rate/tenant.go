package rate

// A Tenant is for whom a call waits, where several share a limiter whose queue has the order [Fair]: a customer, a team, a model.
// The zero Tenant is one, too: that of all calls that name none.
type Tenant struct {
	// Key tells tenants apart.
	Key string
	// Weight is the tenant's share, relative to those of others that wait: from 1 to 1000. If 0, it is 1. Lower numbers count as 1,
	// higher ones as 1000.
	Weight int
	// Priority puts the tenant before all tenants of lower priority that wait: from -2 to 2. Lower numbers count as -2, higher ones as
	// 2. A key with two priorities is two tenants.
	Priority int
}

const (
	mostWeight   = 1000
	mostPriority = 2
	// Priorities is how many priorities there are.
	Priorities = 2*mostPriority + 1
)

// Share returns the weight that counts, from 1 to 1000.
func (t Tenant) Share() int { return min(max(t.Weight, 1), mostWeight) }

// Class returns the priority that counts, from 0 for the lowest to Priorities-1.
func (t Tenant) Class() int { return min(max(t.Priority, -mostPriority), mostPriority) + mostPriority }
