package reload

import (
	"cmp"
	"iter"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/explain"
	"github.com/weir-go/weir/reload/internal/model"
)

// A LimiterInfo describes a limiter of a file.
type LimiterInfo struct {
	Name string
	// Kind is the kind, such as "token_bucket"; of a partitioned limiter the kind of the limiter of each key.
	Kind string
	// Options are the options as the file sets them: of the kind, such as a [limiter.TokenBucketOptions], and for a
	// partitioned limiter those of each key. If nil, the kind has no options, or the file has problems there.
	Options any
	// Partitioned reports whether each key has a limiter of its own, and Key is the name of the key function.
	Partitioned bool
	Key         string
	// MaxPartitions bounds how many keys there can be; 0: nothing does, or they are in a store.
	MaxPartitions int
	// Store is the name of the store with its state; "": it is in the process.
	Store string
	// Members are the names of the limiters in a chain.
	Members []string
}

// Limiter returns what the file says about a shared limiter. ok is false if there is none of that name.
func (f *File) Limiter(name string) (info LimiterInfo, ok bool) {
	l := f.content.LimiterNamed[name]
	if l == nil {
		return info, false
	}
	return infoOf(name, l), true
}

// AllLimiters returns what the file says about its limiters: the shared ones and then the limiters that are written in
// strategies, whose names are pipeline/strategy.
func (f *File) AllLimiters() iter.Seq[LimiterInfo] {
	return func(yield func(LimiterInfo) bool) {
		for _, l := range f.content.Limiters {
			if !yield(infoOf(l.Name, l)) {
				return
			}
		}
		for _, p := range f.content.Pipelines {
			for _, s := range p.Strategies {
				if l := s.Limiter; l != nil && l.Name == "" && !yield(infoOf(p.RegistryName(s, ""), l)) {
					return
				}
			}
		}
	}
}

func infoOf(name string, l *model.Limiter) LimiterInfo {
	info := LimiterInfo{Name: name, Kind: l.Kind, Options: l.Options}
	if o, is := l.Options.(model.PartitionedOptions); is {
		info.Partitioned, info.Key, info.MaxPartitions, info.Options = true, o.Key, o.MaxPartitions, nil
		if l.Each != nil {
			info.Kind, info.Options = l.Each.Kind, l.Each.Options
		}
	}
	if l.Store != nil {
		info.Store = l.Store.Name
	}
	for _, m := range l.Members {
		info.Members = append(info.Members, m.Name)
	}
	return info
}

// ExplainLimiter returns the limits of a shared limiter in words, as [File.Explain] writes them. It returns "" if there
// is no limiter of that name, and during [Section.Check], when limiters can have problems.
func (f *File) ExplainLimiter(name string) string {
	l := f.content.LimiterNamed[name]
	if l == nil || f.unchecked {
		return ""
	}
	return document.Visible(explain.Limits(l))
}

// A StrategyInfo describes a strategy of a file.
type StrategyInfo struct {
	Kind, Name string
	// Limiter is the limiter of a rate limiter. It is called "pipeline/strategy" if it is written in the strategy.
	Limiter LimiterInfo
	// Pipeline is the name of the pipeline that the strategy embeds.
	Pipeline string
}

// Strategies returns what the file says about the strategies of one of its pipelines, the outermost first.
func (f *File) Strategies(pipeline string) (all []StrategyInfo) {
	for _, p := range f.content.Pipelines {
		if p.Name != pipeline {
			continue
		}
		for _, s := range p.Strategies {
			info := StrategyInfo{Kind: s.Kind, Name: s.Name}
			if o, embeds := s.Options.(model.PipelineOptions); embeds {
				info.Pipeline = o.Name
			}
			if l := s.Limiter; l != nil {
				info.Limiter = infoOf(cmp.Or(l.Name, p.RegistryName(s, "")), l)
			}
			all = append(all, info)
		}
	}
	return all
}
