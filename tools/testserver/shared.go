package testserver

import (
	"context"
	"sync"
	"testing"
)

// A lazy server is started when the first test asks for it, and serves the whole test process.
type lazy struct {
	once   sync.Once
	server *Server
	err    error
}

var sharedRedis, sharedPostgres, durablePostgres lazy

// get does not take a test's context: the server outlives the test that asked first.
func (l *lazy) get(start func(context.Context) (*Server, error)) (*Server, error) {
	l.once.Do(func() { l.server, l.err = start(context.Background()) })
	return l.server, l.err
}

// running are the started servers that have not been stopped.
var running = struct {
	sync.Mutex
	servers map[*Server]struct{}
}{servers: map[*Server]struct{}{}}

func remember(s *Server) {
	running.Lock()
	defer running.Unlock()
	running.servers[s] = struct{}{}
}

func forget(s *Server) {
	running.Lock()
	defer running.Unlock()
	delete(running.servers, s)
}

// stopAll stops all running servers at the same time.
func stopAll() {
	running.Lock()
	var left []*Server
	for s := range running.servers {
		left = append(left, s)
	}
	running.Unlock()

	var wg sync.WaitGroup
	for _, s := range left {
		wg.Go(s.Stop)
	}
	wg.Wait()
}

// Main runs m and stops the servers that were started. It is for a TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(testserver.Main(m)) }
func Main(m *testing.M) int {
	defer stopAll() // deferred, because a test can panic
	return m.Run()
}

// Runner is Main for functions that take a testing.M and run it, such as those of goleak, which then looks for goroutines
// after the servers have been stopped.
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Runner(m)) }
func Runner(m *testing.M) interface{ Run() int } { return runner{m} }

type runner struct{ m *testing.M }

func (r runner) Run() int { return Main(r.m) }
