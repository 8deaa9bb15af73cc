package weirredis

import (
	"context"
	"slices"

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
	if err != nil && c.split() {
		err = b.runSplit(ctx, []*call{c})
	}
	if lost := b.noteSlot(c); lost != nil {
		err = lost
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
		if b.unserved.count.Load() > 0 {
			b.noteSlots(all)
		}
		return nil
	}
	// A server that does not know a script, or has only one of its keys, has not carried out the call. Only such calls are
	// sent again.
	if all[0].cmd == nil {
		return failed
	}
	var again, split []*call
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
		if c.split() {
			split = append(split, c)
		}
	}
	if len(split) > 0 {
		failed = b.runSplit(ctx, split)
	}
	b.noteSlots(all)
	for i := range calls {
		if err := calls[i].cmd.Err(); err == nil || keyError(err) {
			return nil
		}
	}
	return failed
}

func (b *Backend) noteSlots(calls []*call) {
	for _, c := range calls {
		_ = b.noteSlot(c) // it is in cmd, too
	}
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

// split reports whether the call has failed because its slot is being moved, and the server has only one of the two keys.
func (c *call) split() bool { return redis.IsTryAgainError(c.cmd.Err()) && c.args[2] == "2" }

// runSplit runs calls that are split. Until the slot has moved, no server takes both keys together, but the client
// finds the server for one. So the definition is read first, and then the script runs with the other key only. A
// definition that is set in between counts as set after the call. The error is that of a call that has failed.
func (b *Backend) runSplit(ctx context.Context, calls []*call) error {
	definitions := make([]*call, len(calls))
	for i, c := range calls {
		definitions[i] = &call{script: b.scripts.load, args: []any{"eval", b.scripts.load.source, "1", c.args[4]}}
	}
	failed := b.pipeline(ctx, definitions)
	var current []*call
	for i, c := range calls {
		d := definitions[i].cmd
		if d == nil {
			return failed // every call keeps the error that it has
		}
		answer := d.Val()
		switch {
		case d.Err() != nil:
			c.cmd.SetErr(d.Err())
		case len(answer) >= 16 && number(answer, 8) > number(c.args[5].(string), 0):
			c.cmd.SetErr(nil)
			c.cmd.SetVal(b.outdated(c, answer[:8], answer[8:16]))
		default:
			c.sendSource()
			c.args = slices.Delete(c.args, 4, 5)
			c.args[2] = "1"
			current = append(current, c)
		}
	}
	if len(current) > 0 {
		failed = b.pipeline(ctx, current)
	}
	return failed
}

// outdated returns the script's answer to a call whose definition is not the newest.
func (b *Backend) outdated(c *call, now, newest string) string {
	if c.script == b.scripts.acquire {
		return "N" + newest
	}
	return newest + now + doubles(0) + string([]byte{answerOutdatedDefinition})
}
