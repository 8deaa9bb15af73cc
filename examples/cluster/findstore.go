package main

import (
	"context"
	"errors"
	"os"

	"github.com/weir-go/weir/tools/testserver"
)

// findStore returns the URL of a server for the limiter's state, and a function that stops
// the server if it was started here.
func findStore(ctx context.Context) (url string, stop func(), err error) {
	if os.Getenv("WEIR_REDIS_URL") == "" && os.Getenv("WEIR_POSTGRES_URL") != "" {
		return found(testserver.StartPostgres(ctx))
	}
	url, stop, noRedis := found(testserver.StartRedis(ctx))
	if noRedis == nil || !errors.Is(noRedis, testserver.ErrNotFound) {
		return url, stop, noRedis
	}
	url, stop, noPostgres := found(testserver.StartPostgres(ctx))
	if noPostgres == nil || !errors.Is(noPostgres, testserver.ErrNotFound) {
		return url, stop, noPostgres
	}
	return "", nil, errors.Join(errors.New("this example needs Redis or PostgreSQL, one of the two"), noRedis, noPostgres)
}

func found(s *testserver.Server, err error) (string, func(), error) {
	if err != nil {
		return "", nil, err
	}
	return s.URL, s.Stop, nil
}
