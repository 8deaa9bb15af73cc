// Package untimed lets a measurer say that it does not need to know how long something was held.
package untimed

// A Holding is embedded in what BeginMeasurement of a pipeline.LeaseMeasurer returns. If it is untimed, the Duration of the
// end is 0, and the strategy does not read the clock for it.
type Holding struct{ is bool }

// HoldingIf returns a Holding that is untimed if is.
func HoldingIf(is bool) Holding { return Holding{is} }

func (h Holding) untimed() bool { return h.is }

// Is reports whether begun is untimed.
func Is(begun any) bool {
	h, ok := begun.(interface{ untimed() bool })
	return ok && h.untimed()
}
