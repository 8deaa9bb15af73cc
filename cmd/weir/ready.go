package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// readyTimeout is how long a gateway has to say whether it is ready.
const readyTimeout = 2 * time.Second

// ready asks the gateway at an admin address whether it can take requests. It is for the health check of a container, which
// has no other program to ask with.
func (c *command) ready(args []string) int {
	address := fileconfig.DefaultAdmin
	switch len(args) {
	case 0:
	case 1:
		address = args[0]
	default:
		c.complain("weir ready: takes one address, found %q\n", args)
		return exitError
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		c.complain("weir ready: must be the admin address of a gateway, such as %s: %v\n", fileconfig.DefaultAdmin, err)
		return exitError
	}
	status, body, err := fetch("http://" + address + "/ready")
	if err != nil {
		c.complain("weir ready: %v\n", err)
		return exitInvalid
	}
	say(c.stdout, "%s", body)
	if status != http.StatusOK {
		return exitInvalid
	}
	return exitOK
}

// fetch gets a URL. It does not ask a proxy that the environment names.
func fetch(url string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(response.Body, 64<<10))
	return response.StatusCode, body, err
}
