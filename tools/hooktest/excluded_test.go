package hooktest

// excluded are the hooks without a row, each with the reason.
var excluded = map[string]string{
	"weir.FieldError.Text(rename)":  "it is called by the program, which gives it a function of its own",
	"budget.Refund(b)":              "calls Refund of a Refunder and nothing else, on the caller's goroutine",
	"weirfailsafe.RetryAfter(exec)": "what failsafe-go hands to its own delay functions",
	"backend.Valid(check)":          "called by a backend, which gives it a function of its own",
	"jobs.Declaration.Work(work)":   "called by River, with functions of its own, on River's goroutine",
	"jobs.Migrate(db)":              "a pool of connections, of the driver's",
	"jobs.Throttler.OnDecision(f)":  "called on the goroutine of the job, with no lock held and after its slots are recorded; River recovers",
	"jobsmetrics.Observe(p)":        "an SDK of OpenTelemetry",
	"jobs.Options.OnEvent":          "called by internal/eventqueue, whose own tests drive it as the rows here would",
	"jobs.Throttled(worker)":        "called by River, on River's goroutine",

	"budget.Describe(b)":                  "calls Statistics of the budget and nothing else, on the caller's goroutine",
	"limiter.Configurable.Limits":         "called by the registry, of limiters that are weir's own",
	"rate.Limited.Limits":                 "asked for before anything is locked or changed, on the caller's goroutine",
	"limiter.Configurable.Reconfigure":    "called by the registry, of limiters that are weir's own",
	"custom.KeyPeeker.PeekKey":            "called by the program and the dashboard, of limiters that are weir's own",
	"custom.RejectionCounter.TopRejected": "called by the program and the dashboard, of limiters that are weir's own",

	"pgmigrate.Beginner.Begin":  "a pool of connections, of the driver's",
	"pgmigrate.Set.Migrate(db)": "a pool of connections, of the driver's",

	"weirhttp.RecordRequest(recorder)": "calls the recorder and nothing else, on the caller's goroutine",

	"reload.Kinds.Resolve(resolve)": "of tools; called while a pipeline is built, as the functions of RegisterStrategy are, which have rows",

	"simulate.File(register)":     "called by the Config of a Scenario and nothing else, on the goroutine that calls the Config",
	"simulate.Config":             "what panics or ends its goroutine is the error of Run: TestRun_Config has rows for it",
	"simulate.Scenario.Config":    "what panics or ends its goroutine is the error of Run: TestRun_Config has rows for it",
	"simulate.Rate.Arrivals":      "what panics ends the run, which returns it: TestRun_Panics of the package has a row for each",
	"simulate.Open.Rate":          "what panics ends the run, which returns it: TestRun_Panics of the package has a row for each",
	"simulate.Durations.Duration": "what panics ends the run, which returns it: TestRun_Panics of the package has a row for each",
	"simulate.Closed.Think":       "what panics ends the run, which returns it: TestRun_Panics of the package has a row for each",
	"simulate.Service.Latency":    "what panics ends the run, which returns it: TestRun_Panics of the package has a row for each",
	"simulate.Period.Latency":     "what panics ends the run, which returns it: TestRun_Panics of the package has a row for each",
	"simulate.Keys.Key":           "what panics ends the run, which returns it: TestRun_Panics of the package has a row for each",
	"simulate.Load.Keys":          "what panics ends the run, which returns it: TestRun_Panics of the package has a row for each",
	"simulate.Costs.Cost":         "what panics ends the run, which returns it: TestRun_Panics of the package has a row for each",
	"simulate.Load.Cost":          "what panics ends the run, which returns it: TestRun_Panics of the package has a row for each",

	"store.New(b)":               "the methods of the Backend have rows",
	"backend.Backend.Close":      "called once, when the Store is closed, on the goroutine that closes it",
	"backend.Pooled.Connections": "called once, by New, on the goroutine of its caller",

	"telemetry.Options.MeterProvider":  "an SDK of OpenTelemetry; what it calls back has a row, Telemetry.ObserveLimiter",
	"telemetry.Options.TracerProvider": "an SDK of OpenTelemetry",

	"weirgrpc.ClientOptions.Failed": "of a module of its own, whose tests drive it: the tests with FunctionsOfTheProgramThatDoNotReturn in their names",

	"backend.Windowed(b)":                 "hands each call on to the backend, on the goroutine of its caller",
	"weirpostgres.Backend.Listen(notice)": "called by the store, with functions of its own",
	"weirpostgres.Backend.Listen(ready)":  "called by the store, with functions of its own",
	"weirpostgres.Beginner.Begin":         "a pool of connections, of the driver's",
	"weirpostgres.Migrate(db)":            "a pool of connections, of the driver's",
	"weirredis.Backend.Listen(notice)":    "called by the store, with functions of its own",
	"weirredis.Backend.Listen(ready)":     "called by the store, with functions of its own",

	"weirrls.Limit.Limiter":           "TestHooks of weirrls, which is a module of its own, drives it as the rows here would",
	"weirrls.Limit.Partitioned":       "TestHooks of weirrls drives it",
	"weirrls.ServiceOptions.Listener": "TestHooks of weirrls drives it",
	"weirrls.PerKey(factory)":         "it is handed to limiter.NewPartitioned, which has rows",
	"weirgrpc.Composite(keys)":        "called on the goroutine of the call: TestLimits_PanicAndGoexit of the package has a row for it",
	"weirgrpc.Key":                    "called on the goroutine of the call: TestLimits_PanicAndGoexit of the package has a row for it",
	"weirgrpc.LimitsOptions.Failed":   "called on the goroutine of the call: TestLimits_PanicAndGoexit of the package has a row for it",
	"weirgrpc.LimitsOptions.Listener": "called on the goroutine of the call: TestLimits_PanicAndGoexit of the package has a row for it",
	"weirgrpc.PerKey(factory)":        "called on the goroutine of the call: TestLimits_PanicAndGoexit of the package has a row for it",
	"weirgrpc.Policy.Cost":            "called on the goroutine of the call: TestLimits_PanicAndGoexit of the package has a row for it",
	"weirgrpc.ByKey(key)":             "called on the goroutine of the call: TestLimits_PanicAndGoexit of the package has a row for it",
	"weirgrpc.Of(l)":                  "called on the goroutine of the call: TestLimits_PanicAndGoexit of the package has a row for it",
	"weirgrpc.ByKey(l)":               "called on the goroutine of the call: TestLimits_PanicAndGoexit of the package has a row for it",
	"weirgrpc.ByRequest(l)":           "called on the goroutine of the call: TestLimits_PanicAndGoexit of the package has a row for it",
	"weirgrpc.Subject(f)":             "called on the goroutine of the call: TestLimits_PanicAndGoexit of the package has a row for it",
}
