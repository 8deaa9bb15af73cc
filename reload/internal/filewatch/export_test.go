package filewatch

// Problem returns the error of the last [Result].
func (w *Watcher) Problem() error {
	w.turn <- struct{}{}
	defer w.endTurn()
	return w.problem
}
