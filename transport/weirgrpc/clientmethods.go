package weirgrpc

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/weir-go/weir/pipeline"
)

// validPattern reports whether pattern can match a method.
func validPattern(pattern string) bool {
	if pattern == "*" {
		return true
	}
	rest, ok := strings.CutPrefix(pattern, "/")
	service, method, found := strings.Cut(rest, "/")
	if !ok || !found || service == "" || method == "" || strings.ContainsAny(service, "*") {
		return false
	}
	return method == "*" || !strings.ContainsAny(method, "*/")
}

// serviceOf returns "/package.Service/" for "/package.Service/Method".
func serviceOf(method string) string { return method[:strings.LastIndexByte(method, '/')+1] }

// matches reports whether the pattern matches the method.
func matches(pattern, method string) bool {
	service, all := strings.CutSuffix(pattern, "*")
	return pattern == method || pattern == "*" || all && service == serviceOf(method)
}

// pipelineOf returns the pipeline of the method, or nil if calls of it stay as they are.
func (c *Client) pipelineOf(method string) *pipeline.Pipeline {
	if len(c.options.Pipelines) == 0 {
		return c.pipeline
	}
	if p, ok := c.options.Pipelines[method]; ok {
		return p
	}
	if p, ok := c.options.Pipelines[serviceOf(method)+"*"]; ok {
		return p
	}
	if p, ok := c.options.Pipelines["*"]; ok {
		return p
	}
	return c.pipeline
}

// idempotentByPattern returns the default of [ClientOptions.Idempotent].
func idempotentByPattern(patterns []string) func(method string) bool {
	patterns = slices.Clone(patterns)
	return func(method string) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, method) }) ||
			declaredIdempotent(method)
	}
}

// declaredIdempotent reports whether the .proto file of the method says that it is idempotent, as far as the program
// links the generated code.
func declaredIdempotent(method string) bool {
	name := strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", ".")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return false
	}
	options, ok := found.Options().(*descriptorpb.MethodOptions)
	if !ok {
		return false
	}
	return options.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
}
