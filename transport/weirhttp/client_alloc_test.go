package weirhttp_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirhttp"
)

// The exchange with its first attempt, its callback, and the map of its header (two); the
// fifth is the stub's response.
func TestTransport_Allocations(t *testing.T) {
	r := benchmarkRequest(t)
	base := stub{body: emptyBody{strings.NewReader("")}}
	for name, want := range map[string]float64{"none": 5, "retry": 5, "limit": 5, "timeout": 7} {
		transport := weir.Must(weirhttp.NewTransport(pipelinesToMeasure(t)[name], &weirhttp.TransportOptions{Base: base}))
		assert.Equal(t, want, testing.AllocsPerRun(100, func() {
			resp, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}), name)
	}
}

func TestGate_Allocations(t *testing.T) {
	gate, err := weirhttp.NewGate(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	gate.Pause("another", time.Hour)
	var lease limiter.Lease
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if lease, err = gate.Acquire(t.Context(), "host", 1); err != nil || !lease.Acquired() {
			t.Fatal(err)
		}
	}))
}

func BenchmarkGate(b *testing.B) {
	gate, err := weirhttp.NewGate(nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"notPaused", "anotherPaused"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				lease, err := gate.Acquire(b.Context(), "host", 1)
				if err != nil {
					b.Fatal(err)
				}
				lease.Release()
			}
		})
		gate.Pause("another", time.Hour)
	}
}

// A Transport without a pipeline only sends requests.
func TestTransport_WithoutAPipeline(t *testing.T) {
	base := &fakeBase{answer: inTurn(http.StatusTeapot)}
	for _, p := range []*pipeline.Pipeline{nil, new(pipeline.Pipeline)} {
		resp, err := weir.Must(weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: base})).RoundTrip(newRequest(t, http.MethodGet, url, ""))
		assert.NoError(t, err)
		assert.Equal(t, http.StatusTeapot, resp.StatusCode)
		readAll(t, resp)
	}
}
