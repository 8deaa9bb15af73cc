package weirredis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A call is one run of a script. All scripts have one key, or several in one slot, and answer with a string.
type call struct {
	script script
	args   []any // the command as it is sent: "evalsha", the hash, "1", the key, arguments
	cmd    *redis.StringCmd
}

// once is a command that go-redis does not send again when the answer does not come: it may have been
// carried out. What a server of a Cluster answers about where to ask is followed.
type once struct{ *redis.StringCmd }

func (once) NoRetry() bool { return true }

func (c once) Clone() redis.Cmder { return once{c.StringCmd.Clone().(*redis.StringCmd)} }

func (c *call) command(ctx context.Context) once {
	c.cmd = redis.NewStringCmd(ctx, c.args...)
	c.cmd.SetFirstKeyPos(3)
	return once{c.cmd}
}

// whole makes the script itself be sent, after which the server knows it.
func (c *call) whole() { c.args[0], c.args[1] = "eval", c.script.source }

// run runs one script and returns what it answers.
func (b *Backend) run(ctx context.Context, c *call) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	err := b.client.Process(ctx, c.command(ctx))
	if forgotten(err) {
		c.whole()
		err = b.client.Process(ctx, c.command(ctx))
	}
	if err != nil {
		b.greetAfter(ctx)
		return "", err
	}
	b.answered()
	return c.cmd.Val(), nil
}

// runAll runs scripts in one round trip. The error is that nothing is known of any of them, and that the servers
// may be away; a call that failed where others did not, or for a reason that is its key's, has an error of its own.
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
	// A server that has lost its scripts has done nothing for those, and only those are sent again.
	again := all[:0]
	for i := range calls {
		if calls[i].cmd == nil {
			return failed
		}
		if forgotten(calls[i].cmd.Err()) {
			calls[i].whole()
			again = append(again, &calls[i])
		}
	}
	if len(again) > 0 {
		failed = b.pipeline(ctx, again)
	}
	for i := range calls {
		if err := calls[i].cmd.Err(); err == nil || ofTheKey(err) {
			return nil
		}
	}
	return failed
}

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
		b.greetAfter(ctx)
	}
	return err
}

// forgotten tells whether the server has answered that it does not know a script.
func forgotten(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }
