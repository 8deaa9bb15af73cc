package store

// Cells is of how many keys the limiter remembers something.
func Cells[O options](p *Partitioned[O]) (n int) {
	p.c.cells.each(func(*cell) { n++ })
	return n
}
