package weirfailsafe

import (
	"context"
	"sync/atomic"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/common"
	"github.com/failsafe-go/failsafe-go/policy"

	"github.com/weir-go/weir/pipeline"
)

var _ policy.Executor[any] = (*policyExecutor[any])(nil)

// A policyExecutor runs executions of failsafe-go through a pipeline.
type policyExecutor[R any] struct {
	policy.BaseExecutor[R]
	policy *pipelinePolicy[R]
}

// Apply implements [policy.Executor].
func (e *policyExecutor[R]) Apply(inner func(failsafe.Execution[R]) *common.PolicyResult[R]) func(failsafe.Execution[R]) *common.PolicyResult[R] {
	return func(exec failsafe.Execution[R]) *common.PolicyResult[R] {
		run := policyRun[R]{exec: exec.(policy.ExecutionInternal[R]), inner: inner}
		value, err := pipeline.ExecuteValue(exec.Context(), e.policy.pipeline, run.attempt)
		if err == nil {
			return result(value, nil, run.last.Load())
		}
		// If an outer policy has cancelled the execution, its result counts.
		if canceled, decided := run.exec.IsCanceledWithResult(); canceled {
			return decided
		}
		return result(value, e.policy.mapError(err), run.last.Load())
	}
}

// A policyRun is one execution of failsafe-go in the pipeline, which can run the inner policies several times, also at the
// same time.
type policyRun[R any] struct {
	exec  policy.ExecutionInternal[R]
	inner func(failsafe.Execution[R]) *common.PolicyResult[R]
	began atomic.Bool // an attempt has begun
	last  atomic.Pointer[common.PolicyResult[R]]
}

// attempt is the callback of the pipeline.
func (r *policyRun[R]) attempt(ctx context.Context) (R, error) {
	exec, end, err := r.begin(ctx)
	if err != nil {
		var none R
		return none, err
	}
	defer end()
	got := r.inner(exec)
	r.last.Store(got)
	return got.Result, got.Error
}

// begin returns the execution for an attempt with that context, and a function that the caller calls when the attempt has
// ended.
//
// The first attempt runs with the execution itself, unless the pipeline has given it a context that can end on its own.
// Any other attempt runs with a copy, which failsafe-go counts as an attempt. A copy is cancelled when the context that
// the pipeline has given it ends.
func (r *policyRun[R]) begin(ctx context.Context) (exec policy.ExecutionInternal[R], end func(), err error) {
	again := r.began.Swap(true)
	own := ctx.Done() != r.exec.Context().Done()
	if !again && !own {
		return r.exec, func() {}, nil
	}
	exec = r.exec.CopyForCancellable().(policy.ExecutionInternal[R])
	end = func() { exec.Cancel(nil) } // failsafe-go does this later if a response is still being read
	if again {
		if decided := exec.InitializeRetry(); decided != nil {
			end()
			return nil, nil, errDecided(exec, decided)
		}
	}
	if own {
		stop := context.AfterFunc(ctx, func() {
			exec.Cancel(&common.PolicyResult[R]{Error: pipeline.ContextError(ctx), Done: true})
		})
		cancel := end
		end = func() { stop(); cancel() }
	}
	return exec, end, nil
}

// errDecided returns the error of an attempt that does not begin because the execution was cancelled with a result. That
// result can be a success: a hedge policy cancels the losing attempts with the winner's result. Such an attempt ends with
// the error of its context, and Apply returns the result.
func errDecided[R any](exec failsafe.Execution[R], decided *common.PolicyResult[R]) error {
	if decided.Error != nil {
		return decided.Error
	}
	if err := pipeline.ContextError(exec.Context()); err != nil {
		return err
	}
	return context.Canceled
}
