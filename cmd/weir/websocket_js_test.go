package main

import (
	"net/http"

	"github.com/coder/websocket"
)

// webSocketOptions returns nil: the browser opens WebSockets. The tests do not run there.
func webSocketOptions(*http.Client) *websocket.DialOptions { return nil }
