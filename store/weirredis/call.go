package weirredis

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store/backend"
)

// A call is one run of a script, which answers with a string. A script has one key, or two in one slot: the second is
// the place's copy of the definition, and the first argument begins with the version of the call's definition.
type call struct {
	script script
	args   []any // the command: "evalsha", the hash, the number of keys, the keys, arguments
	plan   *plan // of a decision
	cmd    *redis.StringCmd
}

// unrepeated is a command that go-redis does not send again if no answer comes, because it may have been carried out.
// go-redis still follows the redirections of a Cluster.
type unrepeated struct{ *redis.StringCmd }

func (unrepeated) NoRetry() bool { return true }

func (c unrepeated) Clone() redis.Cmder { return unrepeated{c.StringCmd.Clone().(*redis.StringCmd)} }

func (c *call) command(ctx context.Context) unrepeated {
	c.cmd = redis.NewStringCmd(ctx, c.args...)
	c.cmd.SetFirstKeyPos(3)
	return unrepeated{c.cmd}
}

func (c call) failed() bool { return c.cmd.Err() != nil }

// sendSource makes the call send the script's source instead of its hash. The server then knows the hash, too.
func (c *call) sendSource() { c.args[0], c.args[1] = "eval", c.script.source }

// run runs one script and returns its answer.
func (s *servers) run(ctx context.Context, c *call) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	err := s.client.Process(ctx, c.command(ctx))
	if scriptUnknown(err) {
		c.sendSource()
		err = s.client.Process(ctx, c.command(ctx))
	}
	if err != nil {
		s.warmUpAfter(ctx)
		return "", err
	}
	s.answered()
	return c.cmd.Val(), nil
}

// runAll runs scripts in one round trip. It returns an error if no call was answered. Otherwise the error of each failed
// call is in its cmd.
func (s *servers) runAll(ctx context.Context, calls []call) error {
	if len(calls) == 0 {
		return nil
	}
	all := make([]*call, len(calls))
	for i := range calls {
		all[i] = &calls[i]
	}
	failed := s.pipeline(ctx, all)
	if failed == nil {
		s.answered()
		return nil
	}
	if all[0].cmd == nil {
		return failed
	}
	var again []*call // a server that does not know a script has not carried out the call
	for _, c := range all {
		if scriptUnknown(c.cmd.Err()) {
			c.sendSource()
			again = append(again, c)
		}
	}
	if len(again) > 0 {
		failed = s.pipeline(ctx, again)
	}
	for _, c := range all {
		if err := c.cmd.Err(); err == nil || keyError(err) {
			return nil
		}
	}
	return failed
}

// runEach runs a script for each item in one round trip, and calls read with each answer. The outcome of an item whose script has
// failed is [backend.Failed] or [backend.Unreachable].
func runEach[T interface{ Fail(backend.Outcome, error) }](ctx context.Context, s *servers, what string, items []T, calls []call, read func(item T, c *call) error) error {
	var err error
	if len(calls) != 1 {
		err = s.runAll(ctx, calls)
	} else if _, err = s.run(ctx, &calls[0]); keyError(err) {
		err = nil
	}
	if err != nil {
		return wrap(ctx, what, err)
	}
	for i := range calls {
		err := calls[i].cmd.Err()
		if err == nil {
			err = read(items[i], &calls[i])
		}
		if err != nil {
			outcome := backend.Unreachable
			if keyError(err) {
				outcome = backend.Failed
			}
			items[i].Fail(outcome, wrap(ctx, what, err))
		}
	}
	return nil
}

// pipeline sends the calls in one round trip.
func (s *servers) pipeline(ctx context.Context, calls []*call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p := s.client.Pipeline()
	for _, c := range calls {
		if err := p.Process(ctx, c.command(ctx)); err != nil {
			return err
		}
	}
	_, err := p.Exec(ctx)
	if err != nil {
		s.warmUpAfter(ctx)
	}
	return err
}

// scriptUnknown reports whether the server does not know the script.
func scriptUnknown(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }
