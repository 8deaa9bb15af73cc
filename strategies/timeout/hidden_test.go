package timeout_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

// status is an error as gRPC's: it has the text of the context's error, and does not wrap it.
type status struct{ code code }

type code uint32

func (s *status) Error() string       { return fmt.Sprintf("rpc error: code = %d", s.code) }
func (s *status) GRPCStatus() *status { return s }
func (s *status) Code() code          { return s.code }

type netError struct{ timeout bool }

func (netError) Error() string   { return "i/o" }
func (e netError) Timeout() bool { return e.timeout }

func TestStrategy_ErrorsThatHideTheContext(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&status{4}, true},
		{&status{1}, true},
		{fmt.Errorf("list: %w", &status{4}), true},
		{&status{14}, false}, // Unavailable
		{netError{true}, true},
		{netError{false}, false},
		{errors.New("boom"), false},
	} {
		for _, late := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				p := weir.Must(pipeline.New("p", timeout.New(time.Second, nil)))
				err := p.Execute(t.Context(), func(ctx context.Context) error {
					if late {
						<-ctx.Done()
					}
					return c.err
				})
				_, timedOut := errors.AsType[*timeout.Error](err)
				assert.Equal(t, c.want && late, timedOut, "%#v", c.err)
			})
		}
	}
}
