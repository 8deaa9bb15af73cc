// Package weirgrpc brings limiters and pipelines to gRPC: interceptors for servers and for clients.
package weirgrpc

import (
	_ "google.golang.org/genproto/googleapis/rpc/errdetails"
	_ "google.golang.org/grpc"
)
