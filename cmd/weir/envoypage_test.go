//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_to_metadata/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// TestEnvoyPage_Blocks checks the blocks of docs/envoy.md, and what docs/recipes.md has for Envoy: blocks of weir by weir check,
// and blocks of Envoy by the types of its API, with the parts that are for its filters.
func TestEnvoyPage_Blocks(t *testing.T) {
	pages := read(t, "../../docs/envoy.md") + read(t, "../../docs/recipes.md")
	kinds := make(map[string]int)
	for i, block := range fenced(pages, "yaml") {
		t.Run(fmt.Sprint("block ", i), func(t *testing.T) {
			for _, d := range yamlDocuments(t, block) {
				kind := kindOfExample(d)
				kinds[kind]++
				switch kind {
				case "weir":
					file := filepath.Join(t.TempDir(), "weir.yaml")
					require.NoError(t, os.WriteFile(file, []byte(block), 0o600))
					checked := weir("", "check", "-strict", file)
					assert.Zero(t, checked.status, checked.err)
					assert.NotContains(t, checked.out+checked.err, "warning", block)
				case "bootstrap":
					checkProto(t, d, &bootstrapv3.Bootstrap{})
				case "route":
					checkProto(t, d, &routev3.Route{})
				case "cluster":
					checkProto(t, d, &clusterv3.Cluster{})
				case "filter":
					checkProto(t, d, &hcmv3.HttpFilter{})
				case "EnvoyFilter":
					checkPatches(t, d)
				}
			}
		})
	}
	for _, kind := range []string{"weir", "bootstrap", "route", "cluster", "filter", "EnvoyFilter", "HTTPProxy"} {
		assert.NotZero(t, kinds[kind], "no block is a %s", kind)
	}
}

// kindOfExample returns what a block is about: the program that reads it, the message of Envoy, or the kind of a resource
// of Kubernetes.
func kindOfExample(d map[string]any) string {
	for field, kind := range map[string]string{
		"rls": "weir", "static_resources": "bootstrap", "typed_per_filter_config": "route", "typed_config": "filter",
		"transport_socket": "cluster",
	} {
		if d[field] != nil {
			return kind
		}
	}
	kind, _ := d["kind"].(string)
	return kind
}

// checkPatches checks the values that an EnvoyFilter of Istio adds to Envoy's configuration.
func checkPatches(t *testing.T, d map[string]any) {
	patches, _ := d["spec"].(map[string]any)["configPatches"].([]any)
	require.NotEmpty(t, patches)
	for _, p := range patches {
		patch, _ := p.(map[string]any)
		value, _ := patch["patch"].(map[string]any)["value"].(map[string]any)
		switch patch["applyTo"] {
		case "HTTP_FILTER":
			checkProto(t, value, &hcmv3.HttpFilter{})
		case "VIRTUAL_HOST":
			value["name"], value["domains"] = "all", []string{"*"} // what it is merged into
			checkProto(t, value, &routev3.VirtualHost{})
		default:
			t.Errorf("no check for a patch of %v", patch["applyTo"])
		}
	}
}

// checkProto checks that a value in YAML is a message of that type, with fields that are all known and valid.
func checkProto(t *testing.T, value map[string]any, m proto.Message) {
	text, err := json.Marshal(value)
	require.NoError(t, err)
	require.NoError(t, protojson.Unmarshal(text, m))
	checkValid(t, m)
}

// checkValid checks a message, and the messages in it that are any message.
func checkValid(t *testing.T, m proto.Message) {
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		assert.NoError(t, v.ValidateAll())
	}
	err := protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		inner, ok := p.Index(-1).Value.Interface().(protoreflect.Message)
		if !ok || inner == m.ProtoReflect() {
			return nil
		}
		if packed, ok := inner.Interface().(*anypb.Any); ok {
			unpacked, err := packed.UnmarshalNew()
			if err != nil {
				return err
			}
			checkValid(t, unpacked)
			return protorange.Break
		}
		return nil
	})
	assert.NoError(t, err)
}

// yamlDocuments returns the documents of a block, which must all be mappings.
func yamlDocuments(t *testing.T, block string) (all []map[string]any) {
	decoder := yaml.NewDecoder(strings.NewReader(block))
	for {
		var d map[string]any
		err := decoder.Decode(&d)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err, block)
		all = append(all, d)
	}
}
