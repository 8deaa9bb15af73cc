package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A fleet is the instances that this process has started.
type fleet []*instance

type instance struct {
	name   string
	url    string
	cmd    *exec.Cmd
	stdin  io.Closer
	killed bool
}

// start starts n processes of this program as instances.
func start(ctx context.Context, store string, n int) (fleet, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var all fleet
	for i := range n {
		one, err := startOne(ctx, self, store, fmt.Sprintf("number %d", i+1))
		if err != nil {
			return all, fmt.Errorf("instance %d: %w", i+1, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func startOne(ctx context.Context, self, store, name string) (*instance, error) {
	cmd := exec.CommandContext(ctx, self, "instance", store)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_ = stdin.Close()
		_ = cmd.Wait()
		return nil, fmt.Errorf("it has not printed its address: %w", err)
	}
	return &instance{name: name, url: "http://" + strings.TrimSpace(address), cmd: cmd, stdin: stdin}, nil
}

// kill ends the process at once, without time to release anything.
func (i *instance) kill() error {
	i.killed = true
	if err := i.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = i.cmd.Wait() // returns an error, because the process was killed
	return nil
}

// stop ends the instances that still run, and waits for them.
func (all fleet) stop() {
	for _, i := range all {
		if !i.killed {
			_ = i.stdin.Close()
			_ = i.cmd.Wait()
		}
	}
}

// flood makes that many calls to each running instance, from several callers for each at the
// same time, and returns how many calls each has admitted.
func (all fleet) flood(ctx context.Context, calls int) ([]int, error) {
	shares := make([]atomic.Int64, len(all))
	errs := make([]error, len(all)*callers)
	var wg sync.WaitGroup
	for i, one := range all {
		for c := range callers {
			if one.killed {
				break
			}
			wg.Go(func() {
				for range calls / callers {
					admitted, _, err := one.call(ctx)
					if err != nil {
						errs[i*callers+c] = err
						return
					}
					if admitted {
						shares[i].Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	counts := make([]int, len(all))
	for i := range shares {
		counts[i] = int(shares[i].Load())
	}
	return counts, errors.Join(errs...)
}

// awaitWindow uses up the window, and sleeps until the next one.
func (all fleet) awaitWindow(ctx context.Context) error {
	for {
		admitted, wait, err := all[0].call(ctx)
		if err != nil {
			return err
		}
		if admitted {
			continue
		}
		select {
		case <-time.After(wait):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// call asks an instance for its service.
func (i *instance) call(ctx context.Context) (admitted bool, wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, i.url, nil)
	if err != nil {
		return false, 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return false, 0, err
	case res.StatusCode == http.StatusOK:
		return true, 0, nil
	case res.StatusCode != http.StatusTooManyRequests:
		return false, 0, fmt.Errorf("%s: %s: %s", i.name, res.Status, strings.TrimSpace(string(body)))
	}
	ms, err := strconv.Atoi(res.Header.Get(retryAfter))
	return false, time.Duration(ms) * time.Millisecond, err
}
