package reload

import (
	_ "embed" // schema.json
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON schema (draft 2020-12) of files with weir's own kinds, which is also the file
// reload/schema.json. Editors use it to complete and check a file. It accepts files that [Parse] refuses, because it
// does not compare fields with each other.
func Schema() []byte { return slices.Clone(schema) }

// Schema returns [Schema] with the kinds and functions of k, for a program to give to its users.
func (k *Kinds) Schema() ([]byte, error) {
	if err := k.err(); err != nil {
		return nil, err
	}
	return makeSchema(k.orOwn().schemaInput())
}

// schemaInput returns what the schema says of k. With [Kinds.AcceptUnknown] a field can have any name.
func (k *Kinds) schemaInput() schemaInput {
	var in schemaInput
	for _, name := range k.strategyNames() {
		in.strategies = append(in.strategies, kindOptions{name: name, options: k.strategy(name).options})
	}
	for _, name := range k.limiterNames() {
		in.limiters = append(in.limiters, kindOptions{name: name, options: k.limiter(name).options})
	}
	if !k.lenient {
		in.functions = make(map[purpose][]string)
		for what, named := range k.functions {
			in.functions[what] = keysOf(named)
		}
	}
	return in
}
