package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

const instanceVariable = "WEIR_DRILL_INSTANCE"

// A job is what an instance is to do: a process of its own that shares a limiter with others. It says
//
//	ready                  it is connected; it begins when it is told to
//	g key n                n permits were granted
//	h id n fence           a lease of n permits is held, since then at the latest
//	l id                   that lease is lost
//	r id                   that lease is about to be released
//	o                      its limits are not in force, because newer ones are
//	done                   it has released it, or has nothing more to do
//
// one a line, each with the machine's time in ns at the end, and each is written before anything else is done. It
// ends with its input, and with the process that has started it.
type job struct {
	Place      string
	Name       string
	Kind       limitertest.Kind
	Limits     limitertest.Limits
	How        store.LimiterOptions
	Keys       int // 0: not partitioned
	Goroutines int
	Permits    []int // how many to ask for at once, in this order
	Work       string
}

// What an instance can be told to do.
const (
	takeAll     = "take all"  // ask for every key until nothing is left
	takeForever = "take on"   // wait for permits again and again
	leaseOn     = "hold on"   // wait for leases and release them again and again
	leaseOnce   = "hold once" // one lease, released at the second word
)

// Main is the instance where this process was started as one, and then does not return. It is to be called before
// tests are run: by an init function of the test.
func Main(open Opener) {
	text := os.Getenv(instanceVariable)
	if text == "" {
		return
	}
	if err := runInstance(open, text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runInstance(open Opener, text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	b, disconnect, err := open(j.Place)
	if err != nil {
		return err
	}
	defer disconnect()
	// A machine that is busy with tests is slow, and an outage is not what these jobs are about.
	s, err := store.New(b, &store.Options{CallTimeout: 20 * time.Second, OnEvent: func(e store.Event) {
		if e.Kind == store.EventOverruled {
			say("o")
		}
	}})
	if err != nil {
		return err
	}
	w := worker{job: j, commands: make(chan struct{})}
	if err := w.make(s); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go w.listen(cancel)
	say("ready")
	<-w.commands
	err = w.work(ctx)
	say("done")
	if closing := s.Close(); err == nil {
		err = closing
	}
	return err
}

// say writes one line at once.
func say(format string, args ...any) {
	line := fmt.Sprintf(format, args...) + fmt.Sprintf(" %d\n", time.Now().UnixNano())
	if _, err := os.Stdout.WriteString(line); err != nil {
		os.Exit(1) // the parent has ended
	}
}
