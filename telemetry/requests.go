package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
)

// A requestKey tells apart the series of HTTP requests.
type requestKey struct {
	method, scheme, route string
	status                int
	errorType             string
	common                bool
}

func (k requestKey) labels() []attribute.KeyValue {
	attrs := appendString(nil, keyMethod, k.method)
	attrs = appendString(attrs, keyScheme, k.scheme)
	attrs = appendString(attrs, keyRoute, k.route)
	if k.status != 0 {
		attrs = append(attrs, attribute.Int(keyStatus, k.status))
	}
	if k.common {
		attrs = append(attrs, attribute.Bool(keyOverflow, true))
	}
	return appendString(attrs, keyErrorType, k.errorType)
}

// commonClass returns the key of the common series of the requests with a status of the class of that of k.
func (k requestKey) commonClass(bool) requestKey {
	class := max(0, min(k.status/100, 5))
	common := requestKey{status: 100 * class, common: true}
	if class == 0 {
		common.errorType = "_OTHER" // what the semantic conventions have for errors without a type
	}
	return common
}
