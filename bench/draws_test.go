package bench

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// draws are keys in the order in which a benchmark asks for them. They are not the strings that a store has kept, and
// stand one behind the other in memory, because the key of a request is a text that has just been read.
type draws []string

// newDraws draws from n keys, evenly or by Zipf's law.
func newDraws(n int, zipf bool) draws {
	random := rand.New(rand.NewPCG(1, 2))
	next := func() int { return random.IntN(n) }
	if zipf {
		law := rand.NewZipf(random, 1.1, 1, uint64(n-1))
		keys := random.Perm(n) // keys that were filled in together are not popular together
		next = func() int { return keys[law.Uint64()] }
	}
	d := make(draws, max(n, 1<<17))
	var text strings.Builder
	for range d {
		text.WriteString(keyName(next()))
	}
	size := text.Len() / len(d)
	for i := range d {
		d[i] = text.String()[i*size : (i+1)*size]
	}
	return d
}

// each returns a function that asks a store for one draw after the other, beginning at a random one.
func (d draws) each(st store) func() bool {
	at := &struct {
		next int
		_    [120]byte // keeps the counters of goroutines in different cache lines
	}{next: rand.IntN(len(d))}
	return func() bool {
		if at.next == len(d) {
			at.next = 0
		}
		at.next++
		return st.try(d[at.next-1])
	}
}

var byDraw = []struct {
	name string
	zipf bool
}{{"uniform", false}, {"zipf", true}}

func TestDraws(t *testing.T) {
	for _, by := range byDraw {
		const n = 1000
		asked := map[string]int{}
		d := newDraws(n, by.zipf)
		next := d.each(store{try: func(key string) bool { asked[key]++; return true }})
		for range 2 * len(d) {
			next()
		}
		assert.Len(t, asked, n, by.name)
		most := 0
		for i := range n {
			most = max(most, asked[keyName(i)])
		}
		average := 2 * len(d) / n
		assert.Equal(t, by.zipf, most > 10*average, by.name)
	}
}
