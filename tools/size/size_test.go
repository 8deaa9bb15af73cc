package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A type has at most maxFields fields and maxMethods methods. These have more: fields, methods. Lower a number with the change that
// makes it lower.
var large = map[string][2]int{
	"limiter.bucket": {7, 46},
	"limiter.window": {8, 32},
	"rate.Schedule":  {8, 31},
}

// At most a tenth of the arrows of a room run back up.
func TestRoomsAndTypesStaySmall(t *testing.T) {
	rooms, err := measure()
	require.NoError(t, err)
	for _, r := range rooms {
		if r.isKit() {
			continue
		}
		assert.LessOrEqual(t, r.back(), max(1, r.all()/10), "%s: arrows between its files run back up; see them by go run ./tools/size -room %[1]s", r.folder)
		for _, of := range r.types {
			most := large[of.name]
			assert.LessOrEqual(t, of.fields, max(maxFields, most[0]), "fields of %s", of.name)
			assert.LessOrEqual(t, of.methods, max(maxMethods, most[1]), "methods of %s", of.name)
		}
	}
}
