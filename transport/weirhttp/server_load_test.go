package weirhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
)

// tally counts measurements by policy.
type tally struct {
	mu                                  sync.Mutex
	granted, rejected, canceled, leases map[string]int
}

func newTally() *tally {
	return &tally{granted: map[string]int{}, rejected: map[string]int{}, canceled: map[string]int{}, leases: map[string]int{}}
}

func (l *tally) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnEvent: l.OnEvent,
		OnMeasurement: func(ctx context.Context, e pipeline.Event) func(context.Context, pipeline.Event) {
			l.OnMeasurement(ctx, e)
			return l.OnMeasurement
		},
	}
}

func (l *tally) OnEvent(context.Context, pipeline.Event) {}

func (l *tally) OnMeasurement(_ context.Context, e pipeline.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, rejected := e.Err.(*ratelimit.RejectedError)
	switch {
	case e.Name == ratelimit.MeasureLease:
		l.leases[e.Source.Strategy]++
	case e.Err == nil:
		l.granted[e.Source.Strategy]++
	case rejected:
		l.rejected[e.Source.Strategy]++
	default:
		l.canceled[e.Source.Strategy]++
	}
}

// countedBody counts open bodies.
type countedBody struct {
	io.Reader
	open *atomic.Int64
	once sync.Once
}

func (b *countedBody) Close() error {
	b.once.Do(func() { b.open.Add(-1) })
	return nil
}

// load counts the answers that the clients got.
type load struct {
	status  [600]atomic.Int64
	aborted atomic.Int64
	open    atomic.Int64 // bodies that clients have sent
}

// send sends one request, and sometimes hangs up during it.
func (l *load) send(t *testing.T, client *http.Client, url string, user, i int) {
	ctx := context.Background()
	abort := i%50 == user%50
	if abort {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(i%7)*300*time.Microsecond)
		defer cancel()
	}
	var body io.Reader
	method := http.MethodGet
	if i%4 == 0 {
		method = http.MethodPost
		l.open.Add(1)
		body = &countedBody{Reader: strings.NewReader("some text"), open: &l.open}
	}
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if !assert.NoError(t, err) {
		return
	}
	r.Header.Set("X-Api-Key", strconv.Itoa(user))
	if abort {
		r.Header.Set("X-Hang", "yes")
	}
	response, err := client.Do(r)
	if !abort && errors.Is(err, context.DeadlineExceeded) {
		// The client's transport gave it the connection, and the error, of a request that had just hung up.
		l.send(t, client, url, user, i)
		return
	}
	if err != nil {
		if abort {
			l.aborted.Add(1)
		} else {
			assert.NoError(t, err)
		}
		return
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	l.status[response.StatusCode].Add(1)
}

func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func TestServer_LoadLeavesNothingBehindConcurrentSafe(t *testing.T) {
	const clients = 64
	requests := 50_000
	switch {
	case testing.Short():
		requests = 5_000
	case raceDetector():
		requests = 10_000 // it takes six times as long
	}
	each := requests / clients
	heard := newTally()
	slots := concurrency(t, 8, 32)
	perUser := keyedBuckets(t, each-each/10)
	limits := weir.Must(NewLimits(&LimitsOptions{
		Listener: heard, Headers: Draft11,
		Global: Policy{Limit: Of(slots), Timeout: time.Minute},
		Policies: map[string]Policy{
			"per-user": {Limit: ByKey(perUser, Header("X-Api-Key")), Quota: 1, Window: time.Hour},
		},
	}))
	orders := weir.Must(pipeline.New("orders", timeout.New(time.Minute, nil)))
	var admitted, ran, running, arrived atomic.Int64
	h := handler(func(w http.ResponseWriter, r *http.Request) {
		ran.Add(1)
		running.Add(1)
		defer running.Add(-1)
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("X-Hang") != "" {
			<-r.Context().Done()
			return
		}
		_, _ = w.Write(body)
	})
	through := Through(orders, nil)(h)
	limited := limits.Handler(handler(func(w http.ResponseWriter, r *http.Request) {
		admitted.Add(1)
		through.ServeHTTP(w, r) // which does not run the handler if the client has gone, and then what it took is given back
	}), "per-user")
	var inside atomic.Int64
	s := serve(t, handler(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		inside.Add(1)
		defer inside.Add(-1)
		limited.ServeHTTP(w, r)
	}), false)
	s.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = clients

	var seen load
	var wg sync.WaitGroup
	for user := range clients {
		wg.Go(func() {
			for i := range each {
				seen.send(t, s.Client(), s.URL, user, i)
			}
		})
	}
	wg.Wait()
	eventually(t, func() bool { return inside.Load() == 0 && seen.open.Load() == 0 }, "all is over")

	assert.Zero(t, running.Load())
	total := seen.aborted.Load()
	for status := range seen.status {
		total += seen.status[status].Load()
	}
	assert.EqualValues(t, clients*each, total, "every client got an answer or hung up")
	t.Logf("%d sent: %d ok, %d over quota, %d over capacity, %d hung up", total,
		seen.status[200].Load(), seen.status[429].Load(), seen.status[503].Load(), seen.aborted.Load())
	assert.Positive(t, seen.aborted.Load())

	heard.mu.Lock()
	defer heard.mu.Unlock()
	assert.EqualValues(t, arrived.Load(), heard.granted[GlobalPolicy]+heard.rejected[GlobalPolicy]+heard.canceled[GlobalPolicy])
	assert.Equal(t, heard.granted[GlobalPolicy], heard.leases[GlobalPolicy])
	assert.Equal(t, heard.granted[GlobalPolicy], heard.granted["per-user"]+heard.rejected["per-user"]+heard.canceled["per-user"])
	assert.Equal(t, heard.granted["per-user"], heard.leases["per-user"])
	assert.EqualValues(t, admitted.Load(), heard.granted["per-user"])
	checkLimiters(t, slots, perUser, int(ran.Load()), heard)
}

// checkLimiters compares the measurements with the statistics of the limiters.
func checkLimiters(t *testing.T, slots *limiter.Concurrency, perUser *limiter.PartitionedLimiter[string, string], ran int, heard *tally) {
	t.Helper()
	of := slots.Statistics()
	assert.Equal(t, limiter.Statistics{
		AvailablePermits: 8, SuccessfulLeases: int64(ran), FailedLeases: int64(heard.rejected[GlobalPolicy]),
	}, of, "what a rejected request had was given back")
	var taken, rejected int64
	for _, l := range perUser.All() {
		s := l.(limiter.StatisticsProvider).Statistics()
		taken += s.SuccessfulLeases
		rejected += s.FailedLeases
	}
	assert.EqualValues(t, ran, taken)
	assert.EqualValues(t, heard.rejected["per-user"], rejected)
	require.Positive(t, rejected)
}
