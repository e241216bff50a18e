package policy

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/internal/strictyaml"
)

// TestSchemaHasEveryKey walks the types of the file beside the schema.
func TestSchemaHasEveryKey(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal([]byte(Schema()), &root); err != nil {
		t.Fatal(err)
	}
	n := 0
	var walk func(at string, typ reflect.Type, s map[string]any)
	resolve := func(v any) map[string]any {
		s, _ := v.(map[string]any)
		if ref, ok := s["$ref"].(string); ok {
			s, _ = root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		}
		return s
	}
	walk = func(at string, typ reflect.Type, s map[string]any) {
		switch {
		case s == nil:
			t.Errorf("%s is not in the schema", at)
		case typ.Kind() == reflect.Pointer:
			walk(at, typ.Elem(), s)
		case typ.Kind() == reflect.Slice:
			if items := resolve(s["items"]); s["type"] != "array" || items == nil {
				t.Errorf("%s has to be an array of items", at)
			} else {
				walk(at+"[]", typ.Elem(), items)
			}
		case typ.Kind() == reflect.Map:
			walk(at+".*", typ.Elem(), resolve(s["additionalProperties"]))
		case typ.Kind() == reflect.Struct:
			var keys []string
			props, _ := s["properties"].(map[string]any)
			for i := range typ.NumField() {
				key := typ.Field(i).Tag.Get("yaml")
				keys = append(keys, key)
				walk(at+"."+key, typ.Field(i).Type, resolve(props[key]))
			}
			slices.Sort(keys)
			if got := slices.Sorted(maps.Keys(props)); !slices.Equal(got, keys) || s["additionalProperties"] != false {
				t.Errorf("%s: the schema has %v and additional %v, the file %v", at, got, s["additionalProperties"], keys)
			}
			n += len(keys)
		case typ == reflect.TypeFor[strictyaml.Int]() && s["type"] != "integer" && s["const"] == nil:
			t.Errorf("%s has to be an integer", at)
		}
	}
	walk("", reflect.TypeFor[file](), root)
	if n < 55 {
		t.Errorf("the walk came to %d keys only", n)
	}
}
