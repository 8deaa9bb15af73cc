package simulate

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
)

type exp time.Duration

func (e exp) Duration(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(e)) }

// config returns a Config of a file.
func config(text string) Config {
	return func(*Setup) (registry.Change, error) {
		k := reload.NewKinds()
		k.RegisterKey("key", Key)
		k.RegisterPermits("cost", Cost)
		f, err := reload.Parse("test.yaml", []byte(text), k)
		if err != nil {
			return registry.Change{}, err
		}
		return f.Change(nil), nil
	}
}

// hashOf returns a hash of the JSON of a result.
func hashOf(t *testing.T, r *Result) string {
	text, err := json.Marshal(r)
	require.NoError(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

type many int

func (m many) Key(r *rand.Rand) string { return fmt.Sprint(r.IntN(int(m))) }

// problemsOf returns what is wrong with a part of a scenario.
func problemsOf(v any) error {
	var p validate.Problems
	include(&p, "", v, true)
	return p.Err("simulate")
}
