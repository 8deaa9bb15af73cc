package telemetry_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// An instrument has the points that were collected of one instrument.
type instrument struct {
	kind, unit string
	points     []point
}

type point struct {
	attributes map[string]any
	value      float64 // a histogram's sum
	count      uint64  // a histogram's
}

// collect reads all instruments, by name.
func collect(t *testing.T, reader *sdkmetric.ManualReader) map[string]instrument {
	t.Helper()
	var read metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &read))
	found := map[string]instrument{}
	for _, scope := range read.ScopeMetrics {
		require.Equal(t, "github.com/weir-go/weir/telemetry", scope.Scope.Name)
		for _, m := range scope.Metrics {
			require.NotEmpty(t, m.Description)
			i := instrument{unit: m.Unit}
			i.kind, i.points = pointsOf(t, m.Data)
			found[m.Name] = i
		}
	}
	return found
}

func pointsOf(t *testing.T, data metricdata.Aggregation) (kind string, points []point) {
	t.Helper()
	switch data := data.(type) {
	case metricdata.Sum[int64]:
		kind = "up-down counter"
		if data.IsMonotonic {
			kind = "counter"
		}
		return kind, numbers(data.DataPoints)
	case metricdata.Gauge[int64]:
		return "gauge", numbers(data.DataPoints)
	case metricdata.Gauge[float64]:
		return "gauge", numbers(data.DataPoints)
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			points = append(points, point{attributes: asMap(p.Attributes), value: p.Sum, count: p.Count})
		}
		return "histogram", points
	default:
		require.Failf(t, "unknown", "%T", data)
		return "", nil
	}
}

func numbers[N int64 | float64](all []metricdata.DataPoint[N]) (points []point) {
	for _, p := range all {
		points = append(points, point{attributes: asMap(p.Attributes), value: float64(p.Value)})
	}
	return points
}

func asMap(set attribute.Set) map[string]any {
	attributes := map[string]any{}
	for _, kv := range set.ToSlice() {
		attributes[string(kv.Key)] = kv.Value.AsInterface()
	}
	return attributes
}

// at returns the point with exactly these attributes.
func (i instrument) at(t *testing.T, attributes map[string]any) point {
	t.Helper()
	n := slices.IndexFunc(i.points, func(p point) bool { return fmt.Sprint(p.attributes) == fmt.Sprint(attributes) })
	require.GreaterOrEqual(t, n, 0, "%v is not among %v", attributes, i.points)
	return i.points[n]
}

// sum returns the sum of all points with this attribute.
func (i instrument) sum(key string, value any) (sum float64) {
	for _, p := range i.points {
		if p.attributes[key] == value {
			sum += p.value
		}
	}
	return sum
}
