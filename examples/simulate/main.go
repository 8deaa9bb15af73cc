// Simulate shows how to use package simulate in a program. It draws what four limiters do under the same burst.
//
//	go run ./examples/simulate -limiters docs/images/limiters.svg
//	go run ./examples/simulate -log examples/simulate/access.log.gz
//
// The second command makes the access log of this folder, of requests drawn from a seed. The YAML files of this folder are
// for weir simulate: see docs/simulate.md.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	f := flag.NewFlagSet("simulate", flag.ContinueOnError)
	f.SetOutput(stderr)
	picture := f.String("limiters", "", "write a picture of four limiters to this `file`")
	log := f.String("log", "", "write the access log to this `file`, compressed")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *picture == "" && *log == "" {
		return fmt.Errorf("nothing to do: give -limiters FILE or -log FILE")
	}
	if *picture != "" {
		var b bytes.Buffer
		if err := drawLimiters(ctx, &b); err != nil {
			return err
		}
		if err := os.WriteFile(*picture, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if *log != "" {
		var b bytes.Buffer
		zipped, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return err
		}
		if err := writeLog(zipped); err != nil {
			return err
		}
		if err := zipped.Close(); err != nil {
			return err
		}
		return os.WriteFile(*log, b.Bytes(), 0o644)
	}
	return nil
}
