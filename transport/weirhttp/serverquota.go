package weirhttp

import (
	"net/http"
	"time"

	"github.com/weir-go/weir/limiter"
)

// writeQuotas tells the client about every policy of the route that was asked.
func (c *call) writeQuotas(w http.ResponseWriter, r *http.Request) {
	for _, p := range c.route.policies[c.First:] {
		if p.quota == nil {
			continue
		}
		key, lease := c.Granted(&p.Policy, r)
		p.writeQuota(w, r, key, lease, 0)
	}
}

// writeQuota tells the client about one policy. A retryAfter above 0, of a rejection, replaces the reset of the quota.
func (p *preparedPolicy) writeQuota(w http.ResponseWriter, r *http.Request, key string, lease limiter.Lease, retryAfter time.Duration) {
	if q, ok := p.quota.Current(r, key, lease, retryAfter); ok {
		quota(q).write(w.Header(), p.options.Headers)
	}
}
