//go:build !js

package main

import (
	"net/http"

	"github.com/coder/websocket"
)

// webSocketOptions makes WebSockets use the transport of c.
func webSocketOptions(c *http.Client) *websocket.DialOptions {
	return &websocket.DialOptions{HTTPClient: &http.Client{Transport: c.Transport}}
}
