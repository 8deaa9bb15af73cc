package weirrls

import (
	"strconv"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// metadata returns the dynamic metadata, in the form that envoyproxy/ratelimit gives it.
func (d *decision) metadata() *structpb.Struct {
	descriptors := make([]*structpb.Value, 0, len(d.checks))
	for _, descriptor := range d.request.GetDescriptors() {
		if descriptor != nil {
			descriptors = append(descriptors, structpb.NewStructValue(descriptorMetadata(descriptor)))
		}
	}
	fields := map[string]*structpb.Value{
		"domain":      textValue(d.request.GetDomain()),
		"descriptors": structpb.NewListValue(&structpb.ListValue{Values: descriptors}),
	}
	if n := d.request.GetHitsAddend(); n != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(n))
	}
	passed := &structpb.Struct{}
	for i := range d.checks {
		c := &d.checks[i]
		if c.hits != nil && !c.objects() {
			merge(passed, c.limit.metadata)
		}
	}
	if len(passed.GetFields()) > 0 {
		fields["metadata"] = structpb.NewStructValue(passed)
	}
	return &structpb.Struct{Fields: fields}
}

// descriptorMetadata returns a descriptor of the request.
func descriptorMetadata(d *common.RateLimitDescriptor) *structpb.Struct {
	entries := make([]*structpb.Value, 0, len(d.GetEntries()))
	for _, e := range d.GetEntries() {
		entries = append(entries, textValue(e.GetKey()+"="+e.GetValue()))
	}
	fields := map[string]*structpb.Value{"entries": structpb.NewListValue(&structpb.ListValue{Values: entries})}
	if l := d.GetLimit(); l != nil {
		fields["limit"] = structpb.NewStringValue(overrideText(l))
	}
	if n := d.GetHitsAddend(); n != nil {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(n.GetValue()))
	}
	return &structpb.Struct{Fields: fields}
}

// overrideText returns the text of a limit that a request brings, such as "requests_per_unit:10 unit:MINUTE".
func overrideText(l *common.RateLimitDescriptor_RateLimitOverride) string {
	var fields []string
	if n := l.GetRequestsPerUnit(); n != 0 {
		fields = append(fields, "requests_per_unit:"+strconv.FormatUint(uint64(n), 10))
	}
	if u := l.GetUnit(); u != 0 {
		fields = append(fields, "unit:"+u.String())
	}
	if m := l.GetUnitMultiplier(); m != nil {
		fields = append(fields, "unit_multiplier:{value:"+strconv.FormatUint(uint64(m.GetValue()), 10)+"}")
	}
	return strings.Join(fields, " ")
}

// textValue returns text as a value. The protocol does not carry text that is not UTF-8.
func textValue(text string) *structpb.Value {
	return structpb.NewStringValue(strings.ToValidUTF8(text, "\uFFFD"))
}

// merge adds copies of the fields of from that into has not. Objects that both have are merged.
func merge(into, from *structpb.Struct) {
	for name, value := range from.GetFields() {
		has, ok := into.GetFields()[name]
		if !ok {
			if into.Fields == nil {
				into.Fields = make(map[string]*structpb.Value)
			}
			into.Fields[name] = proto.CloneOf(value)
			continue
		}
		if object := has.GetStructValue(); object != nil {
			merge(object, value.GetStructValue())
		}
	}
}
