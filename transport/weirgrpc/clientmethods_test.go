package weirgrpc_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// registerLevels registers a service whose methods have all idempotency levels, as generated code does. A file can be
// registered once only, also if the test runs again.
func registerLevels(t *testing.T) {
	t.Helper()
	registering.Do(func() {
		method := func(name string, level descriptorpb.MethodOptions_IdempotencyLevel) *descriptorpb.MethodDescriptorProto {
			return &descriptorpb.MethodDescriptorProto{
				Name: &name, InputType: new(".weir.test.Nothing"), OutputType: new(".weir.test.Nothing"),
				Options: &descriptorpb.MethodOptions{IdempotencyLevel: &level},
			}
		}
		file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
			Name: new("weir/test/levels.proto"), Package: new("weir.test"), Syntax: new("proto3"),
			MessageType: []*descriptorpb.DescriptorProto{{Name: new("Nothing")}},
			Service: []*descriptorpb.ServiceDescriptorProto{{Name: new("Levels"), Method: []*descriptorpb.MethodDescriptorProto{
				method("Read", descriptorpb.MethodOptions_NO_SIDE_EFFECTS),
				method("Put", descriptorpb.MethodOptions_IDEMPOTENT),
				method("Add", descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN),
			}}},
		}, protoregistry.GlobalFiles)
		require.NoError(t, err)
		require.NoError(t, protoregistry.GlobalFiles.RegisterFile(file))
	})
}

var registering sync.Once
