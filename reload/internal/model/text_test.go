package model

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestText_TypesWithMethodsOfPointers(t *testing.T) {
	type options struct {
		Pattern *regexp.Regexp
		Value   regexp.Regexp `yaml:"value"`
		Each    map[string]*regexp.Regexp
	}
	with := func(pattern string) string {
		return Text(options{regexp.MustCompile(pattern), *regexp.MustCompile(pattern), map[string]*regexp.Regexp{"a": regexp.MustCompile(pattern)}})
	}
	first := with("a+")
	assert.Equal(t, first, with("a+"))
	assert.NotEqual(t, first, with("b+"))
	assert.Equal(t, `{pattern:"a+",value:"a+",each:{"a":"a+",},}`, with("a+"))
}
