package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// What becomes of an instance after its start. All of it is called with in.mu held.

func (in *instance) running() bool { return in.process != nil && !in.process.ended() }

func (in *instance) kill() {
	if in.running() {
		in.control.kill(in.process.cmd.Process)
		<-in.process.done
	}
	in.process, in.paused = nil, false
}

func (in *instance) pause() {
	if in.running() && !in.paused {
		in.control.pause(in.process.cmd.Process)
		in.paused = true
	}
}

func (in *instance) resume() {
	if in.running() && in.paused {
		in.control.resume(in.process.cmd.Process)
	}
	in.paused = false
}

// quit asks it to end, and kills it if it does not.
func (in *instance) quit() {
	in.resume()
	if in.running() {
		in.control.quit(in.process.cmd.Process)
		timeout := time.NewTimer(5 * time.Second)
		defer timeout.Stop()
		select {
		case <-in.process.done:
		case <-timeout.C:
		}
	}
	in.kill()
}

func (in *instance) restart(ctx context.Context, empty bool) error {
	if in.dir == "" {
		return fmt.Errorf("testserver: Restart of %s after Stop", in.name)
	}
	in.quit()
	if empty {
		if in.clear != nil {
			in.clear(in.data())
		}
		if err := in.fill(ctx); err != nil {
			return fmt.Errorf("testserver: restart %s: %w", in.name, err)
		}
	}
	var err error
	for range starts {
		err = in.start(ctx)
		if !errors.Is(err, errEnded) {
			break
		}
		// What holds the port or the memory is not ours to wait for: a process that was just killed, or a
		// connection that happens to come from our port.
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("testserver: restart %s: %w", in.name, err)
	}
	return nil
}

// stop ends it for good.
func (in *instance) stop() {
	if in.dir == "" {
		return
	}
	in.quit()
	if in.clear != nil {
		in.clear(in.data())
	}
	removeAll(in.dir)
	in.dir = ""
}

// removeAll tries more than once: a process that was killed may write a last file while we remove its folder.
func removeAll(dir string) {
	for range 20 {
		if os.RemoveAll(dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
