package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/hedge"
)

func newTurns() *turns { return &turns{asked: make(chan struct{}, 1)} }

// Tasks that something wakes at the same instant run one after the other, by their numbers.
func TestTurns_Order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurns()
		var got []string // without a lock: the race detector says if two tasks run at once
		var done sync.WaitGroup
		tasks := []*task{}
		for number := range int64(20) {
			for _, order := range [][]int{nil, {1, 0}, {1, 0, 1, 1}, {1, 1}} {
				task := newTask(s, &request{number: number})
				task.order = order
				tasks = append(tasks, task)
			}
		}
		want := make([]string, len(tasks))
		for i, task := range tasks {
			want[i] = fmt.Sprint(task.request.number, task.order)
		}
		rand.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
		for _, task := range tasks {
			done.Go(func() {
				time.Sleep(time.Second)
				task.Take()
				task.Take() // it has it
				got = append(got, fmt.Sprint(task.request.number, task.order))
			})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		s.settle()
		done.Wait()
		assert.Equal(t, want, got)
	})
}

func TestTurns_End(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurns()
		early, late := newTask(s, &request{}), newTask(s, &request{})
		ended := make(chan string, 2)
		go func() {
			defer func() { ended <- "early" }()
			early.Take()
			ended <- "early went on"
		}()
		synctest.Wait()
		s.end()
		assert.Equal(t, "early", <-ended)
		go func() {
			defer func() { ended <- "late" }()
			late.Take()
			ended <- "late went on"
		}()
		assert.Equal(t, "late", <-ended)
		assert.Nil(t, s.first())
	})
}

// A tracer notes which task is in front of it.
type tracer struct {
	name string
	log  *[]string
}

func (s *tracer) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	t := taskOf(ctx)
	*s.log = append(*s.log, fmt.Sprintf("%s%d%v%v", s.name, t.request.number, t.order, t.turns.holder.Load() == t))
	return next.Run(ctx)
}

// Nested hedges have tasks of their own, named by the race and the attempt.
func TestGate_Hedges(t *testing.T) {
	var log []string
	r := through(t, Scenario{
		Config: func(*Setup) (registry.Change, error) {
			return registry.Change{Define: map[string]registry.BuildFunc{"p": func(b *registry.Builder) error {
				b.Add(
					&tracer{"a", &log},
					hedge.New(&hedge.Options{Name: "outer", AtOnce: true, MaxHedges: 1}),
					&tracer{"b", &log},
					hedge.New(&hedge.Options{Name: "inner", AtOnce: true, MaxHedges: 1}),
					&tracer{"c", &log},
				)
				return nil
			}}}, nil
		},
		Load:    atOnce(2),
		Service: Service{Latency: Fixed{10 * ms}},
	})
	assert.Equal(t, []string{
		"a0[]true", "b0[1 0]true", "c0[1 0 1 0]true", "c0[1 0 1 1]true", "b0[1 1]true", "c0[1 1 1 0]true", "c0[1 1 1 1]true",
		"a1[]true", "b1[1 0]true", "c1[1 0 1 0]true", "c1[1 0 1 1]true", "b1[1 1]true", "c1[1 1 1 0]true", "c1[1 1 1 1]true",
	}, log)
	assert.Equal(t, Counts{Requests: 2, Offered: 2, Admitted: 2, Succeeded: 2, Calls: 8, Retried: 6, Satisfied: 2}, r.Total)
}

// A task that a limiter wakes has no turn: it takes one before it goes on.
func TestGate_WokenTasks(t *testing.T) {
	var log []string
	r, err := Run(t.Context(), Scenario{
		Config: func(s *Setup) (registry.Change, error) {
			change, err := config(`pipelines: {p: {strategies: [{rate_limiter: {token_bucket:
				{token_limit: 3, tokens_per_period: 3, replenishment_period: 1s, queue_limit: 100, queue_order: newest_first}}}]}}`)(s)
			build := change.Define["p"]
			change.Define["p"] = func(b *registry.Builder) error {
				if err := build(b); err != nil {
					return err
				}
				b.Add(&tracer{"", &log})
				return nil
			}
			return change, err
		},
		Load: atOnce(9),
	})
	require.NoError(t, err)
	assert.Equal(t, []string{
		"0[]true", "1[]true", "2[]true", // at once
		"6[]true", "7[]true", "8[]true", // a second later, the newest, by their numbers
		"3[]true", "4[]true", "5[]true",
	}, log)
	assert.EqualValues(t, 6, r.Total.Queued)
	assert.EqualValues(t, 9, r.Wait.Count)
	about(t, 2*time.Second, r.Wait.Max)
}

// What is not a request of the simulation goes through.
func TestGate_Outsiders(t *testing.T) {
	p, err := pipeline.New("p", (&interposer{}).Interpose([]pipeline.Strategy{hedge.New(nil)})...)
	require.NoError(t, err)
	assert.NoError(t, p.Execute(t.Context(), func(ctx context.Context) error {
		assert.Empty(t, Key(ctx))
		assert.Equal(t, 1, Cost(ctx))
		return nil
	}))
}
