package config

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestExampleHasEveryKey holds the example to the configuration: who reads only
// the example has seen everything that can be set.
func TestExampleHasEveryKey(t *testing.T) {
	keys := map[string]string{}
	collectKeys(reflect.TypeFor[Config](), "", keys)
	if len(keys) < 60 {
		t.Fatalf("only %d keys were found", len(keys))
	}
	for path, key := range keys {
		place := `[#\s{,-]` + key + `:`
		if path == key {
			place = `(?m)^(# )?` + key + `:` // of the first level
		}
		if !regexp.MustCompile(place).MatchString(string(Example)) {
			t.Errorf("%s is not in the example", path)
		}
	}
}

func collectKeys(typ reflect.Type, path string, keys map[string]string) {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		collectKeys(typ.Elem(), path, keys)
		return
	case reflect.Struct:
	default:
		return
	}
	for i := range typ.NumField() {
		if !typ.Field(i).IsExported() {
			continue
		}
		key, options, _ := strings.Cut(typ.Field(i).Tag.Get("yaml"), ",")
		if options == "inline" {
			collectKeys(typ.Field(i).Type, path, keys)
			continue
		}
		keys[path+key] = key
		collectKeys(typ.Field(i).Type, path+key+".", keys)
	}
}
