// Package untimed is how a measurer says that it does not want to know how long something was held.
package untimed

// Holding is embedded in what a pipeline.LeaseMeasurer returns of BeginMeasurement. The Duration of the end is then 0,
// and no clock is read for it.
type Holding struct{ is bool }

// HoldingIf returns a Holding that is untimed, or is not.
func HoldingIf(is bool) Holding { return Holding{is} }

func (h Holding) untimed() bool { return h.is }

// Is reports whether begun is untimed.
func Is(begun any) bool {
	h, ok := begun.(interface{ untimed() bool })
	return ok && h.untimed()
}
