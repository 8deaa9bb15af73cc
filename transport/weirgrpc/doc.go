// Package weirgrpc brings limiters and pipelines to gRPC: interceptors for servers and for clients.
package weirgrpc
