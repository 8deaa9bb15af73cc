package fileconfig

import (
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/reload"
	_ "github.com/weir-go/weir/reload/adaptive" // the files of weir can have every kind
)

// Members calls do with what the file says about the limiter and, if it is a chain, about those in it.
func Members(f *reload.File, name string, do func(reload.LimiterInfo)) {
	seen := make(map[string]bool)
	var visit func(name string)
	visit = func(name string) {
		info, ok := f.Limiter(name)
		if !ok || seen[name] {
			return
		}
		seen[name] = true
		do(info)
		for _, m := range info.Members {
			visit(m)
		}
	}
	visit(name)
}

// Adapting returns the kind of the limiter, or of one in its chain, that learns from the outcomes of requests.
func Adapting(f *reload.File, name string) (kind string) {
	Members(f, name, func(info reload.LimiterInfo) {
		if info.Kind == "adaptive" || info.Kind == "throttler" {
			kind = info.Kind
		}
	})
	return kind
}

// LimitsOf returns the limits that the options of a limiter are; zero if they are options of another sort.
func LimitsOf(options any) rate.Limits {
	o, _ := options.(limiter.Options)
	return rate.Of(o)
}
