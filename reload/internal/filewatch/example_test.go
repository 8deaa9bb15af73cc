package filewatch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-go/weir/reload/internal/filewatch"
)

// A program that may start before its configuration is there.
func Example() {
	dir, err := os.MkdirTemp("", "filewatch")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "pipelines.yaml")

	loaded := make(chan struct{})
	w, err := filewatch.New(filewatch.Options{
		Path:     path,
		Interval: 20 * time.Millisecond,
		Settle:   time.Millisecond,
		Load: func(_ context.Context, content []byte) error {
			fmt.Printf("loaded %q\n", content)
			close(loaded)
			return nil
		},
		Ended: func(r filewatch.Result) {
			if r.Log {
				fmt.Println("something is wrong:", r.Err != nil)
			}
		},
	})
	if err != nil {
		panic(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	err = w.Reload(ctx)
	if read, ok := errors.AsType[*filewatch.ReadError](err); ok && read.Missing() {
		fmt.Println("starting without it")
	}
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()

	if err := os.WriteFile(path, []byte("pipelines: {}"), 0o600); err != nil {
		panic(err)
	}
	<-loaded
	cancel()
	fmt.Println(<-ended)
	// Output:
	// something is wrong: true
	// starting without it
	// loaded "pipelines: {}"
	// something is wrong: false
	// context canceled
}
