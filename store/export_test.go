package store

// Cells is of how many keys the limiter remembers something.
func Cells[O options](p *Partitioned[O]) (n int) {
	p.c.cells.each(func(*cell) { n++ })
	return n
}

// PretendKeys has the limiter behave as if it remembered so many more keys.
func PretendKeys[O options](p *Partitioned[O], n int64) { p.c.cells.number.Add(n) }
