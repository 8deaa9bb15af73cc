package reload

import (
	_ "embed" // schema.json
	"slices"

	"github.com/weir-go/weir/reload/internal/schema"
)

// ownSchema is made by a test, from testdata/schema/base.json, the types of the options, the comments of their fields and what their Validate methods
// refuse.
//
//go:embed schema.json
var ownSchema []byte

// Schema returns the JSON schema (draft 2020-12) of files with weir's own kinds, which is also the file
// reload/schema.json. Editors use it to complete and check a file. It accepts files that [Parse] refuses, because it
// does not compare fields with each other.
func Schema() []byte { return slices.Clone(ownSchema) }

// Schema returns [Schema] with the kinds and functions of k, for a program to give to its users.
func (k *Kinds) Schema() ([]byte, error) {
	k = k.orOwn()
	if err := k.wrong.Err("reload"); err != nil {
		return nil, err
	}
	return schema.Make(ownSchema, k.known())
}
