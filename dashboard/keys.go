package dashboard

import (
	"context"

	"github.com/weir-go/weir/internal/ask"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/registry"
)

const (
	// topKeys is how many keys of a limiter are shown.
	topKeys = 20
	// allKeys is how many a limiter is asked for. The counts of all that it has add up to all rejections.
	allKeys = 1 << 20
)

// A keysAnswer is the answer of a [custom.RejectionCounter].
type keysAnswer struct {
	top   []keyState
	total int64 // the rejections of all keys
}

// askKeys asks the partitioned limiters which keys they reject most. They count only while they are asked, so they are
// asked only while a page is open. A question is nil if the limiter does not count.
func (s *sampler) askKeys(infos []registry.LimiterInfo) []*ask.Question[keysAnswer] {
	questions := make([]*ask.Question[keysAnswer], len(infos))
	for i, info := range infos {
		counter, ok := info.Limiter.(custom.RejectionCounter)
		series := s.limiters[info.Name]
		if !ok || series == nil {
			continue
		}
		questions[i] = series.keys.Ask("dashboard: TopRejected of a limiter", func() (a keysAnswer) { // the text of a key can call the program
			for i, k := range counter.TopRejected(allKeys) {
				if a.total += k.Rejections; i < topKeys {
					a.top = append(a.top, keyState{Key: s.dashboard.keyText(k.Key), Rejected: k.Rejections, Error: k.Error})
				}
			}
			return a
		})
	}
	return questions
}

func (s *sampler) keyStates(ctx context.Context, infos []registry.LimiterInfo, questions []*ask.Question[keysAnswer]) []limiterKeys {
	states := []limiterKeys{}
	for i, q := range questions {
		if q == nil {
			continue
		}
		answer, ok := q.Wait(ctx)
		state := limiterKeys{Limiter: infos[i].Name, Keys: answer.top}
		if !ok {
			state.Note = "The limiter has not answered in time."
		}
		if state.Keys == nil {
			state.Keys = []keyState{}
		}
		states = append(states, state)
	}
	return states
}
