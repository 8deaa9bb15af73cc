package naive

import "github.com/weir-go/weir/limiter/limitertest"

// A Fault is one thing that a limiter can do wrong. The zero Fault is none.
type Fault uint8

// What may be wrong.
const (
	None Fault = iota
	OverGrant
	ZeroBlocked
	ZeroTakes
	ZeroWaitsFree
	RangeRejected
	Barging
	NoBarging
	WrongOrder
	SkipsHead
	CountsWaiters
	PushesOutNewest
	LosesPermits
	KeepsRoom
	StuckAfterCancel
	CountsCancelled
	DeafToContext
	OpenAfterClose
	ReleasesAfterClose
	CountsClosed
	ClosedIsError
	EarlyRetry
	LateRetry
	WholePeriods
	IgnoresQueue
	NoRetryAfter
	IdleTouched
	IdleSinceLook
	DoubleRelease
	OneLineOnly
	Drift
	SavesUp
	ServeEachLine
	FreshBurst
	ClampsUse
	NoServeOnRaise
	KeepsTooLarge
	NoRefund
	RefundsTooLate
	IgnoresDoneContext
	RangeBeforeContext
	ContextBeforeRange
	NoCause
	RacyGrant
	LateTimer
	ServesLateOnce
	ChargesLate
	lastFault
)

// faultNames are the constants, in their order.
var faultNames = [...]string{
	None:               "None",
	OverGrant:          "OverGrant",
	ZeroBlocked:        "ZeroBlocked",
	ZeroTakes:          "ZeroTakes",
	ZeroWaitsFree:      "ZeroWaitsFree",
	RangeRejected:      "RangeRejected",
	Barging:            "Barging",
	NoBarging:          "NoBarging",
	WrongOrder:         "WrongOrder",
	SkipsHead:          "SkipsHead",
	CountsWaiters:      "CountsWaiters",
	PushesOutNewest:    "PushesOutNewest",
	LosesPermits:       "LosesPermits",
	KeepsRoom:          "KeepsRoom",
	StuckAfterCancel:   "StuckAfterCancel",
	CountsCancelled:    "CountsCancelled",
	DeafToContext:      "DeafToContext",
	OpenAfterClose:     "OpenAfterClose",
	ReleasesAfterClose: "ReleasesAfterClose",
	CountsClosed:       "CountsClosed",
	ClosedIsError:      "ClosedIsError",
	EarlyRetry:         "EarlyRetry",
	LateRetry:          "LateRetry",
	WholePeriods:       "WholePeriods",
	IgnoresQueue:       "IgnoresQueue",
	NoRetryAfter:       "NoRetryAfter",
	IdleTouched:        "IdleTouched",
	IdleSinceLook:      "IdleSinceLook",
	DoubleRelease:      "DoubleRelease",
	OneLineOnly:        "OneLineOnly",
	Drift:              "Drift",
	SavesUp:            "SavesUp",
	ServeEachLine:      "ServeEachLine",
	FreshBurst:         "FreshBurst",
	ClampsUse:          "ClampsUse",
	NoServeOnRaise:     "NoServeOnRaise",
	KeepsTooLarge:      "KeepsTooLarge",
	NoRefund:           "NoRefund",
	RefundsTooLate:     "RefundsTooLate",
	IgnoresDoneContext: "IgnoresDoneContext",
	RangeBeforeContext: "RangeBeforeContext",
	ContextBeforeRange: "ContextBeforeRange",
	NoCause:            "NoCause",
	RacyGrant:          "RacyGrant",
	LateTimer:          "LateTimer",
	ServesLateOnce:     "ServesLateOnce",
	ChargesLate:        "ChargesLate",
}

// String returns the name of the constant.
func (f Fault) String() string { return faultNames[f] }

// Faults returns all faults but None.
func Faults() []Fault {
	var all []Fault
	for f := None + 1; f < lastFault; f++ {
		all = append(all, f)
	}
	return all
}

// reconfigureFaults does wrong what some faults do wrong in Reconfigure.
func (m *Model) reconfigureFaults(limitertest.Limits) {
	switch m.Fault {
	case FreshBurst:
		m.spent = nil
	case ClampsUse:
		if over := m.used() - m.Limits.Permits; over > 0 {
			m.giveBack(over)
		}
	}
}
