package reload_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
)

// refused are options whose Validate method returns an error that the test sets.
type refused struct {
	MaxAge  int               `yaml:"max_age,omitempty"`
	Limit   int               `yaml:"limit,omitempty"`
	Inner   *refusedPart      `yaml:"inner,omitempty"`
	List    []refusedPart     `yaml:"list,omitempty"`
	ByName  map[string]string `yaml:"by_name,omitempty"`
	OnEvent func()            `yaml:"-"`
}

type refusedPart struct {
	Max int `yaml:"max,omitempty"`
	Min int `yaml:"min,omitempty"`
}

var errRefused error

func (refused) Validate() error { return errRefused }

func TestParse_PlaceOfOptionsError(t *testing.T) {
	k := reload.NewKinds()
	reload.RegisterStrategy(k, "mine", func(*registry.Builder, refused) (pipeline.Strategy, error) { return nil, nil })
	const (
		begin = "pipelines: {a: {strategies: [mine: "
		place = "f:1:36: pipelines.a.strategies[0].mine: "
	)
	field := func(path, problem string, value any) error {
		return &weir.OptionsError{Package: "mine", Fields: []weir.FieldError{{Path: path, Problem: problem, Value: value}}}
	}
	for _, c := range []struct {
		name, options string
		err           error
		want          string
	}{
		{"field", "{max_age: 3}", field("MaxAge", "must be at most {Limit}", 3), "f:1:46: pipelines.a.strategies[0].mine.max_age: max_age must be at most limit, got 3"},
		{"left out", "{}", field("MaxAge", "must be set", nil), place + "max_age must be set"},
		{"struct", "{limit: 1}", field("", "{Limit} and {MaxAge} exclude each other", nil), place + "limit and max_age exclude each other"},
		{"other field failed", "{limit: x, max_age: 1}", field("MaxAge", "must be at most {Limit}", 1), `f:1:44: pipelines.a.strategies[0].mine.limit: must be a whole number, found the text "x"`},
		{"any field failed", "{limit: x}", field("", "is wrong", nil), `f:1:44: pipelines.a.strategies[0].mine.limit: must be a whole number, found the text "x"`},
		{"function", "{}", field("OnEvent", "must not be nil", nil), place + "OnEvent must not be nil"},
		{"unknown", "{}", field("Nowhere.Else", "must be set, as {Other}", nil), place + "Nowhere.Else must be set, as Other"},
		{"nested", "{inner: {max: 2}}", field("Inner.Max", "must be above {Min}", 2), "f:1:50: pipelines.a.strategies[0].mine.inner.max: max must be above min, got 2"},
		{"nested left out", "{inner: {max: 2}}", field("Inner.Min", "must be set", nil), "f:1:44: pipelines.a.strategies[0].mine.inner: min must be set"},
		{"nested in nothing", "{}", field("Inner.Min", "must be set", nil), place + "inner.min must be set"},
		{"element", "{list: [{}, {max: 2}]}", field("List[1].Max", "must be 1", 2), "f:1:54: pipelines.a.strategies[0].mine.list[1].max: max must be 1, got 2"},
		{"element left out", "{list: [{}]}", field("List[1].Max", "must be 1", nil), "f:1:43: pipelines.a.strategies[0].mine.list: list[1].max must be 1"},
		{"key", "{by_name: {a.b: c}}", field("ByName[a.b]", "must be short", "c"), `f:1:52: pipelines.a.strategies[0].mine.by_name["a.b"]: by_name[a.b] must be short, got "c"`},
		{"joined", "{max_age: 3}", errors.Join(field("MaxAge", "must be 2", 3), errors.New("MaxAge; Limit")), place + "MaxAge; Limit\nf:1:46: pipelines.a.strategies[0].mine.max_age: max_age must be 2, got 3"},
		{"wrapped", "{max_age: 3}", fmt.Errorf("mine: %w", field("MaxAge", "must be 2", 3)), "f:1:46: pipelines.a.strategies[0].mine.max_age: max_age must be 2, got 3"},
		{"another error", "{max_age: 3}", errors.New("MaxAge is 3; Limit is 0"), place + "MaxAge is 3; Limit is 0"},
		{"another error, and a field failed", "{limit: x}", errors.New("MaxAge is 3"), `f:1:44: pipelines.a.strategies[0].mine.limit: must be a whole number, found the text "x"`},
	} {
		errRefused = c.err
		_, err := reload.Parse("f", []byte(begin+c.options+"]}}"), k)
		assert.EqualError(t, err, c.want, c.name)
	}
}
