package telemetry_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/telemetry"
)

func TestConfigReloaded(t *testing.T) {
	l, reader := started(t, telemetry.Options{})
	for name := range collect(t, reader) {
		assert.NotContains(t, name, "weir.config", "a program without a configuration file")
	}

	first := time.UnixMilli(1_700_000_000_250)
	l.ConfigReloaded(first, errBoom)
	metrics := collect(t, reader)
	assert.Zero(t, metrics["weir.config.last_reload.successful"].at(t, map[string]any{}).value)
	assert.NotContains(t, metrics, "weir.config.last_reload.success.timestamp")
	assert.Zero(t, metrics["weir.config.reloads"].at(t, map[string]any{"result": "success"}).value)
	assert.EqualValues(t, 1, metrics["weir.config.reloads"].at(t, map[string]any{"result": "failure"}).value)

	second := first.Add(time.Minute)
	l.ConfigReloaded(second, nil)
	metrics = collect(t, reader)
	assert.EqualValues(t, 1, metrics["weir.config.last_reload.successful"].at(t, map[string]any{}).value)
	assert.Equal(t, 1_700_000_060.25, metrics["weir.config.last_reload.success.timestamp"].at(t, map[string]any{}).value)

	third := second.Add(time.Minute)
	l.ConfigReloaded(third, errBoom)
	metrics = collect(t, reader)
	assert.Zero(t, metrics["weir.config.last_reload.successful"].at(t, map[string]any{}).value)
	assert.Equal(t, 1_700_000_060.25, metrics["weir.config.last_reload.success.timestamp"].at(t, map[string]any{}).value)
}
