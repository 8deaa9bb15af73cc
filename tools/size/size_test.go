package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/tools/repo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Ceilings are the lines of code and of tests, and the exported names, that each group may have. Lower them with the change that
// makes a group smaller.
var ceilings = map[string]counts{
	"limiter":                {4160, 7330, 203},
	"rate":                   {750, 650, 74},
	"pipeline":               {850, 1100, 84},
	"strategies":             {2900, 5950, 273},
	"registry":               {2000, 4450, 61},
	"reload":                 {4000, 3850, 66},
	"store":                  {7130, 10460, 200},
	"transport":              {7540, 12160, 188},
	"jobs":                   {3760, 5940, 77},
	"dashboard":              {3360, 2210, 28},
	"telemetry":              {1440, 2750, 12},
	"simulate":               {4960, 3740, 88},
	"cmd":                    {7650, 5870, 0},
	"internal":               {1620, 1400, 0},
	"weirtest":               {250, 350, 30},
	".":                      {100, 50, 9},
	"limiter/limitertest":    {1500, 400, 30},
	"limiter/internal/model": {800, 0, 0},
	"store/storetest":        {2450, 750, 28},
	"store/internal/drill":   {2450, 100, 0},
	"examples":               {2090, 2175, 0},
	"bench":                  {2160, 2640, 0},
	"tools":                  {3090, 5860, 0},
}

// A type has at most maxFields fields and maxMethods methods. These have more: fields, methods. Lower a number with the change that
// makes it lower.
var large = map[string][2]int{
	"cmd/weir/internal/gatewayconfig.Gateway":      {19, 18},
	"cmd/weir/internal/process.Process":            {17, 15},
	"cmd/weir/internal/rlsconfig.RLS":              {16, 14},
	"dashboard.Dashboard":                          {13, 30},
	"jobs.batch":                                   {12, 21},
	"jobs.statements":                              {52, 0},
	"jobs/internal/window.Window":                  {6, 23},
	"limiter.bucket":                               {7, 46},
	"limiter.window":                               {8, 32},
	"rate.Schedule":                                {8, 31},
	"simulate.Result":                              {21, 5},
	"simulate.run":                                 {21, 18},
	"transport/weirhttp/internal/handlerio.writer": {10, 23},
}

func TestGroupsStaySmall(t *testing.T) {
	root, err := repo.Root()
	require.NoError(t, err)
	got, err := count(root)
	require.NoError(t, err)
	for _, p := range parts {
		for _, group := range p.groups {
			most, has := ceilings[group], got[group]
			assert.LessOrEqual(t, has.code, most.code, "%s: lines of code", group)
			assert.LessOrEqual(t, has.tests, most.tests, "%s: lines of tests", group)
			assert.LessOrEqual(t, has.names, most.names, "%s: exported names", group)
		}
	}
}

func TestRoomsAndTypesStaySmall(t *testing.T) {
	root, err := repo.Root()
	require.NoError(t, err)
	rooms, err := measure(root)
	require.NoError(t, err)
	for _, r := range rooms {
		if part, _ := groupOf(r.folder); part == kits {
			continue
		}
		most := max(1, r.all()/10) // a tenth of the arrows
		assert.LessOrEqual(t, r.back(), most, "%s: arrows between its files run back up; see them by go run ./tools/size -room %[1]s", r.folder)
		for _, of := range r.types {
			most := large[of.name]
			assert.LessOrEqual(t, of.fields, max(maxFields, most[0]), "fields of %s", of.name)
			assert.LessOrEqual(t, of.methods, max(maxMethods, most[1]), "methods of %s", of.name)
		}
	}
}

func TestExportedNames(t *testing.T) {
	assert.Equal(t, 5, exportedNames(`package a // a

const C untyped int = 1
func F(a, b int) error
type T[K comparable, V any] struct // has unexported fields
type T[K comparable, V any] struct, Field int
type I interface, Method()
type M map[struct{ a, b int }]int
method (T) M()
`))
}
