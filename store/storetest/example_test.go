package storetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/storetest"
)

// The test of a backend runs the suite. Here the backend is a Memory.
func ExampleRun() {
	_ = func(t *testing.T) {
		server := storetest.NewMemory()
		storetest.Run(t, storetest.Subject{
			New: func(testing.TB) backend.Backend { return server },
		})
	}
}

// A Memory shows how a program behaves when the store is slow, away or forgetful.
func ExampleMemory() {
	server := storetest.NewMemory()
	shared := weir.Must(store.New(server, nil))
	defer func() { _ = shared.Close() }()
	exports := weir.Must(shared.FixedWindow("exports", limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}, nil))
	take := func() bool { return weir.Must(exports.TryAcquire(context.Background(), 1)).Acquired() }

	fmt.Println("taken:", take())
	fmt.Println("nothing left:", take())
	server.Forget()
	fmt.Println("after a restart that has lost everything:", take())
	// Output:
	// taken: true
	// nothing left: false
	// after a restart that has lost everything: true
}
