package weirgrpc

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/weir-go/weir/pipeline"
)

// EventServiceConfigRetry says that both the pipeline and grpc-go retry the calls of a method: the pipeline has begun a second
// attempt, and the service config of the connection has a retryPolicy for the method. From then on the Client turns
// grpc-go's retries of the method off, so that the attempts of both do not multiply. It is reported once for a method. Err
// names the method and says what to change. Its severity is Warning.
//
// This also turns off the transparent retries of grpc-go for that method. So remove the retryPolicy, or the retry from the
// pipeline, or make the connection with [Client.DialOptions].
//
// A Client whose interceptors were not installed by DialOptions does not see a [grpc.WithDisableRetry], nor a retry policy
// that comes from xDS.
const EventServiceConfigRetry = "OnServiceConfigRetry"

// withoutServiceConfigRetry turns grpc-go's retries of one call off: with no room to keep the request, grpc-go commits the
// call to the attempt that has sent it.
var withoutServiceConfigRetry = grpc.MaxRetryRPCBufferSize(0)

// maxDoubledMethods bounds the methods that a Client remembers. A proxy can call any number of them.
const maxDoubledMethods = 1024

// doubledMethods are the methods that both the pipeline and grpc-go retry, as far as calls have shown.
type doubledMethods struct {
	some    atomic.Bool
	mu      sync.Mutex
	methods map[string]struct{}
}

func (d *doubledMethods) has(method string) bool {
	if !d.some.Load() {
		return false // the usual case
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.methods[method]
	return ok
}

// add reports whether the method is new.
func (d *doubledMethods) add(method string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.methods[method]; ok || len(d.methods) >= maxDoubledMethods {
		return false
	}
	if d.methods == nil {
		d.methods = make(map[string]struct{})
	}
	d.methods[method] = struct{}{}
	d.some.Store(true)
	return true
}

// isDoubled reports whether the attempt of that number must turn grpc-go's retries off. The first attempt of a call
// leaves them on until a call has shown that the pipeline retries: a pipeline does not say beforehand whether it does.
func (x *outgoingCall) isDoubled(number int) bool {
	if x.alone || x.conn == nil || number == 0 && !x.client.doubled.has(x.method) {
		return false
	}
	if x.conn.GetMethodConfig(x.method).RetryPolicy == nil {
		return false
	}
	if number > 0 && x.client.doubled.add(x.method) {
		x.reportDoubled()
	}
	return true
}

func (x *outgoingCall) reportDoubled() {
	err := fmt.Errorf("weirgrpc: %s is retried by the pipeline and by grpc-go: remove the retryPolicy of the method from the "+
		"service config, or make the connection with Client.DialOptions", x.method)
	onEvent := pipeline.HooksOf(x.client.options.Listener).OnEvent
	if onEvent == nil {
		slog.Default().WarnContext(context.WithoutCancel(x.Context), err.Error())
		return
	}
	onEvent(x.Context, pipeline.Event{
		Name:      EventServiceConfigRetry,
		Severity:  pipeline.SeverityWarning,
		Source:    pipeline.Source{Pipeline: x.client.pipelineOf(x.method).Name()},
		Operation: pipeline.Operation(x.Context),
		Err:       err,
	})
}
