package weirredis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A call is one run of a script, which answers with a string. A script has one key, or two in one slot: the second is
// the place's copy of the definition, and the first argument begins with the version of the call's definition.
type call struct {
	script script
	args   []any // the command: "evalsha", the hash, the number of keys, the keys, arguments
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

// sendSource makes the call send the script's source instead of its hash. The server then knows the hash, too.
func (c *call) sendSource() { c.args[0], c.args[1] = "eval", c.script.source }

// run runs one script and returns its answer.
func (b *Backend) run(ctx context.Context, c *call) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	err := b.client.Process(ctx, c.command(ctx))
	if scriptUnknown(err) {
		c.sendSource()
		err = b.client.Process(ctx, c.command(ctx))
	}
	if err != nil {
		b.warmUpAfter(ctx)
		return "", err
	}
	b.answered()
	return c.cmd.Val(), nil
}

// runAll runs scripts in one round trip. It returns an error if no call was answered. Otherwise the error of each failed
// call is in its cmd.
func (b *Backend) runAll(ctx context.Context, calls []call) error {
	if len(calls) == 0 {
		return nil
	}
	all := make([]*call, len(calls))
	for i := range calls {
		all[i] = &calls[i]
	}
	failed := b.pipeline(ctx, all)
	if failed == nil {
		b.answered()
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
		failed = b.pipeline(ctx, again)
	}
	for _, c := range all {
		if err := c.cmd.Err(); err == nil || keyError(err) {
			return nil
		}
	}
	return failed
}

// runEach is run for one call, and runAll for several.
func (b *Backend) runEach(ctx context.Context, calls []call) error {
	switch len(calls) {
	case 0:
		return nil
	case 1:
		if _, err := b.run(ctx, &calls[0]); !keyError(err) {
			return err
		}
		return nil
	}
	return b.runAll(ctx, calls)
}

// pipeline sends the calls in one round trip.
func (b *Backend) pipeline(ctx context.Context, calls []*call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p := b.client.Pipeline()
	for _, c := range calls {
		if err := p.Process(ctx, c.command(ctx)); err != nil {
			return err
		}
	}
	_, err := p.Exec(ctx)
	if err != nil {
		b.warmUpAfter(ctx)
	}
	return err
}

// scriptUnknown reports whether the server does not know the script.
func scriptUnknown(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }
