package weirfailsafe

import (
	"context"
	"sync/atomic"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/common"
	"github.com/failsafe-go/failsafe-go/policy"

	"github.com/weir-go/weir/pipeline"
)

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
		// Where an outer policy has cancelled the execution, its result stands.
		if canceled, stands := run.exec.IsCanceledWithResult(); canceled {
			return stands
		}
		return result(value, e.policy.mapError(err), run.last.Load())
	}
}

// A policyRun is one execution of failsafe-go on its way through the pipeline,
// which may run what is inside several times, and at once.
type policyRun[R any] struct {
	exec  policy.ExecutionInternal[R]
	inner func(failsafe.Execution[R]) *common.PolicyResult[R]
	began atomic.Bool
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

// begin returns the execution for an attempt that ctx limits.
//
// The first attempt whose context is cancelled by nobody but failsafe-go has the
// execution itself. Another has one of its own, which failsafe-go counts, and one
// whose context can end besides is cancelled with it.
func (r *policyRun[R]) begin(ctx context.Context) (exec policy.ExecutionInternal[R], end func(), err error) {
	again := r.began.Swap(true)
	own := ctx.Done() != r.exec.Context().Done()
	if !again && !own {
		return r.exec, func() {}, nil
	}
	exec = r.exec.CopyForCancellable().(policy.ExecutionInternal[R])
	end = func() { exec.Cancel(nil) } // later, if a response is still being read
	if again {
		if stands := exec.InitializeRetry(); stands != nil {
			end()
			return nil, nil, lost(exec, stands)
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

// lost returns the error of an attempt that does not begin because the execution was cancelled with a
// result. That result can be a success: a hedge policy cancels the losing attempts with the winner's
// result. Such an attempt ends with the error of its context, and Apply returns the result.
func lost[R any](exec failsafe.Execution[R], stands *common.PolicyResult[R]) error {
	if stands.Error != nil {
		return stands.Error
	}
	if err := pipeline.ContextError(exec.Context()); err != nil {
		return err
	}
	return context.Canceled
}
