package hooktest

import (
	"context"
	"net/http"
	"path"
	"reflect"
	"strings"
)

// fields returns a row for each of the fields of O, names separated by blanks, that is a function. In the row, that field of
// options is the hook.
func fields[O any](on place, names string, options O, drive func(x *scene, o *O) drill) (rows []row) {
	of := reflect.TypeFor[O]()
	for name := range strings.FieldsSeq(names) {
		field, _ := of.FieldByName(name)
		owner := of // or the struct that is embedded
		if last := len(field.Index) - 1; last > 0 {
			owner = of.FieldByIndex(field.Index[:last]).Type
		}
		rows = append(rows, row{path.Base(owner.PkgPath()) + "." + owner.Name() + "." + name, on, func(x *scene) drill {
			o := options
			v := reflect.ValueOf(&o).Elem().FieldByIndex(field.Index)
			v.Set(x.hooked(v))
			return drive(x, &o)
		}})
	}
	return rows
}

// hook returns a function that is the hook, and then f.
func hook[F any](x *scene, f F) F { return x.hooked(reflect.ValueOf(f)).Interface().(F) }

// hooked returns a function that is the hook, and then f. Without f, its results are zero.
func (x *scene) hooked(f reflect.Value) reflect.Value {
	f = reflect.ValueOf(f.Interface()) // a copy: f may be the field that is set to the result
	return reflect.MakeFunc(f.Type(), func(args []reflect.Value) (results []reflect.Value) {
		var ctx []context.Context
		for _, a := range args {
			switch a := a.Interface().(type) {
			case context.Context:
				ctx = append(ctx, a)
			case *http.Request:
				ctx = append(ctx, a.Context())
			}
		}
		x.hit(ctx...)
		if !f.IsNil() {
			return f.Call(args)
		}
		for out := range f.Type().NumOut() {
			results = append(results, reflect.Zero(f.Type().Out(out)))
		}
		return results
	})
}
