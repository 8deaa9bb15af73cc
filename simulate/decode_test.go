package simulate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/reload"
)

// parts is a section of a file with each part of a load and a service whose type is also its form in a file.
type parts struct {
	Ramp        *Ramp        `yaml:"ramp,omitempty"`
	Sine        *Sine        `yaml:"sine,omitempty"`
	Bursts      *Bursts      `yaml:"bursts,omitempty"`
	Exponential *Exponential `yaml:"exponential,omitempty"`
	Uniform     *Uniform     `yaml:"uniform,omitempty"`
	LogNormal   *LogNormal   `yaml:"log_normal,omitempty"`
	UniformKeys *UniformKeys `yaml:"uniform_keys,omitempty"`
	ZipfKeys    *ZipfKeys    `yaml:"zipf_keys,omitempty"`
	AbuserKeys  *AbuserKeys  `yaml:"abuser_keys,omitempty"`
	UniformCost *UniformCost `yaml:"uniform_cost,omitempty"`
}

// Files are decoded into the parts by package reload, which names what is wrong as the file does.
func TestParts_InFile(t *testing.T) {
	s := time.Second
	got := decodeParts(t, `
  ramp: {from: 1, to: 2, for: 1s}
  sine: {mean: 5, amplitude: 5, period: 1s}
  bursts: {size: 3, every: 1s, first: 1s}
  exponential: {mean: 1s}
  uniform: {min: 1s, max: 1s}
  log_normal: {median: 1s, p99: 1s}
  uniform_keys: {count: 3}
  zipf_keys: {count: 3, exponent: 0.9}
  abuser_keys: {share: 0.5, others: 3}
  uniform_cost: {min: 1, max: 3}
`)
	assert.Equal(t, parts{
		Ramp: &Ramp{From: 1, To: 2, For: s}, Sine: &Sine{Mean: 5, Amplitude: 5, Period: s}, Bursts: &Bursts{Size: 3, Every: s, First: s},
		Exponential: &Exponential{Mean: s}, Uniform: &Uniform{Min: s, Max: s}, LogNormal: &LogNormal{Median: s, P99: s},
		UniformKeys: &UniformKeys{Count: 3}, ZipfKeys: &ZipfKeys{Count: 3, Exponent: 0.9}, AbuserKeys: &AbuserKeys{Share: 0.5, Others: 3},
		UniformCost: &UniformCost{Min: 1, Max: 3},
	}, got)
}

func TestParts_InFileInvalid(t *testing.T) {
	_, err := parseParts("\n  sine: {mean: 5, amplitude: 6, period: 1s}\n")
	assert.ErrorContains(t, err, "amplitude must be at least 0 and at most mean, which is 5, got 6")
}

func decodeParts(t *testing.T, text string) parts {
	t.Helper()
	f, err := parseParts(text)
	require.NoError(t, err)
	p, ok := reload.SectionOf[parts](f, "load")
	require.True(t, ok)
	return p
}

func parseParts(text string) (*reload.File, error) {
	k := reload.NewKinds()
	reload.RegisterSection(k, "load", reload.Section[parts]{})
	return reload.Parse("load.yaml", []byte("allow_empty: true\nload:"+text), k)
}
