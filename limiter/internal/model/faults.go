package model

// A Fault is one thing that a limiter can do wrong, by its name.
type Fault string

// None is the fault of a correct limiter.
const None Fault = ""

// What can be wrong.
var (
	OverGrant          = fault("OverGrant")
	ZeroBlocked        = fault("ZeroBlocked")
	ZeroTakes          = fault("ZeroTakes")
	ZeroWaitsFree      = fault("ZeroWaitsFree")
	RangeRejected      = fault("RangeRejected")
	Barging            = fault("Barging")
	NoBarging          = fault("NoBarging")
	WrongOrder         = fault("WrongOrder")
	SkipsHead          = fault("SkipsHead")
	CountsWaiters      = fault("CountsWaiters")
	PushesOutNewest    = fault("PushesOutNewest")
	LosesPermits       = fault("LosesPermits")
	KeepsRoom          = fault("KeepsRoom")
	StuckAfterCancel   = fault("StuckAfterCancel")
	CountsCancelled    = fault("CountsCancelled")
	DeafToContext      = fault("DeafToContext")
	OpenAfterClose     = fault("OpenAfterClose")
	ReleasesAfterClose = fault("ReleasesAfterClose")
	CountsClosed       = fault("CountsClosed")
	ClosedIsError      = fault("ClosedIsError")
	EarlyRetry         = fault("EarlyRetry")
	LateRetry          = fault("LateRetry")
	WholePeriods       = fault("WholePeriods")
	IgnoresQueue       = fault("IgnoresQueue")
	NoRetryAfter       = fault("NoRetryAfter")
	IdleTouched        = fault("IdleTouched")
	IdleSinceLook      = fault("IdleSinceLook")
	DoubleRelease      = fault("DoubleRelease")
	OneLineOnly        = fault("OneLineOnly")
	Drift              = fault("Drift")
	SavesUp            = fault("SavesUp")
	FreshBurst         = fault("FreshBurst")
	ClampsUse          = fault("ClampsUse")
	NoServeOnRaise     = fault("NoServeOnRaise")
	KeepsTooLarge      = fault("KeepsTooLarge")
	NoRefund           = fault("NoRefund")
	RefundsTooLate     = fault("RefundsTooLate")
	IgnoresDoneContext = fault("IgnoresDoneContext")
	RangeBeforeContext = fault("RangeBeforeContext")
	ContextBeforeRange = fault("ContextBeforeRange")
	NoCause            = fault("NoCause")
	RacyGrant          = fault("RacyGrant")
	LateTimer          = fault("LateTimer")
	PeekTakes          = fault("PeekTakes")
	PeekCounts         = fault("PeekCounts")
	PeekTouches        = fault("PeekTouches")
	PeekIgnoresQueue   = fault("PeekIgnoresQueue")
	PeekHolds          = fault("PeekHolds")
	ChargeQueues       = fault("ChargeQueues")
	ChargeCounts       = fault("ChargeCounts")
	ChargeClamps       = fault("ChargeClamps")
	ChargeOverfills    = fault("ChargeOverfills")
	ChargeNewest       = fault("ChargeNewest")
	ChargeOldest       = fault("ChargeOldest")
	ChargeUnserved     = fault("ChargeUnserved")
	ChargeTouches      = fault("ChargeTouches")
	LevelEarly         = fault("LevelEarly")
	ServesLateOnce     = fault("ServesLateOnce")
	ChargesLate        = fault("ChargesLate")
)

var faults []Fault

// Faults returns all faults.
func Faults() []Fault { return faults }

func fault(name string) Fault {
	faults = append(faults, Fault(name))
	return Fault(name)
}
