// Package schema holds message bodies against JSON Schemas (draft 2020-12) that
// stand in files. It implements quarantine.Schema.
//
// A schema may refer to the others of its set by their file names and to
// nothing else: neither the network nor other files are ever read for it.
package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// ErrSchema is returned for a set that cannot be used. The message names the
// file and what is wrong with it.
var ErrSchema = errors.New("unusable schema")

// Limits of a set and of what is checked.
const (
	MaxFile  = 1 << 20 // bytes of one file
	MaxFiles = 1000
	maxBody  = 16 << 20 // larger bodies are not checked: they break "size"
	// Longer or larger numbers are not checked: they break "number". Exact
	// arithmetic with 1e999999 takes 30 ms and a megabyte.
	maxDigits   = 1000
	maxExponent = 1000
)

// File says which bodies a schema is for.
type File struct {
	Type    string // event type
	Version string // schema version; "" is for every version that has no file of its own
	Path    string
}

type subject struct{ typ, version string }

// Set is schemas by type and version.
type Set struct {
	by     map[subject]*jsonschema.Schema
	digest string
}

// base makes the file names of a set absolute, as references need it. Nothing
// is ever read from there.
const base = "schema:///"

// Load reads and compiles a set. Errors wrap ErrSchema.
func Load(files []File) (*Set, error) {
	if len(files) > MaxFiles {
		return nil, fmt.Errorf("%d files, at most %d: %w", len(files), MaxFiles, ErrSchema)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(closed{})
	names, err := add(c, files)
	if err != nil {
		return nil, err
	}
	s := &Set{by: map[subject]*jsonschema.Schema{}}
	sum := sha256.New()
	for _, f := range sorted(files) {
		at := subject{f.Type, f.Version}
		if s.by[at] != nil {
			return nil, fmt.Errorf("type %q, version %q has two schemas: %w", f.Type, f.Version, ErrSchema)
		}
		compiled, err := c.Compile(base + filepath.Base(f.Path))
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %w", f.Path, err, ErrSchema)
		}
		s.by[at] = compiled
		fmt.Fprintf(sum, "%q %q %x\n", f.Type, f.Version, names[filepath.Base(f.Path)])
	}
	if len(files) > 0 {
		s.digest = hex.EncodeToString(sum.Sum(nil))
	}
	return s, nil
}

// add registers the files under their names, and returns the digests of what
// they hold.
func add(c *jsonschema.Compiler, files []File) (map[string][32]byte, error) {
	names, paths := map[string][32]byte{}, map[string]string{}
	for _, f := range files {
		name := filepath.Base(f.Path)
		if other, ok := paths[name]; ok {
			if other != f.Path {
				return nil, fmt.Errorf("%s and %s have the same name: %w", other, f.Path, ErrSchema)
			}
			continue // one file for several types
		}
		text, err := read(f.Path)
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %w", f.Path, err, ErrSchema)
		}
		if err := c.AddResource(base+name, doc); err != nil {
			return nil, fmt.Errorf("%s: %w: %w", f.Path, err, ErrSchema)
		}
		names[name], paths[name] = sha256.Sum256(text), f.Path
	}
	return names, nil
}

func read(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w: %w", err, ErrSchema)
	}
	if st.Size() > MaxFile {
		return nil, fmt.Errorf("%s has %d bytes, at most %d: %w", path, st.Size(), MaxFile, ErrSchema)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w: %w", err, ErrSchema)
	}
	return text, nil
}

func sorted(files []File) []File {
	out := slices.Clone(files)
	slices.SortFunc(out, func(a, b File) int {
		return strings.Compare(a.Type+"\x00"+a.Version, b.Type+"\x00"+b.Version)
	})
	return out
}

// closed loads nothing: a reference leads to a file of the set or nowhere.
type closed struct{}

// Load implements jsonschema.URLLoader.
func (closed) Load(url string) (any, error) {
	return nil, fmt.Errorf("%q is not a file of the configured schemas", strings.TrimPrefix(url, base))
}

// Digest implements quarantine.Schema.
func (s *Set) Digest() string { return s.digest }

// Check implements quarantine.Schema.
func (s *Set) Check(typ, version string, body []byte) (violation string, known bool) {
	sch := s.by[subject{typ, version}]
	if sch == nil {
		sch = s.by[subject{typ, ""}]
	}
	if sch == nil {
		return "", false
	}
	if len(body) > maxBody {
		return "size", true
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return "json", true
	}
	if !bounded(v) {
		return "number", true
	}
	var broken *jsonschema.ValidationError
	switch err := sch.Validate(v); {
	case err == nil:
		return "", true
	case errors.As(err, &broken):
		return rule(broken), true
	default:
		return "schema", true
	}
}

// bounded reports whether arithmetic with every number of a document is cheap
// and defined: of larger ones the library makes nil, and calls it.
func bounded(v any) bool {
	switch v := v.(type) {
	case json.Number:
		_, exponent, has := strings.Cut(strings.ToLower(string(v)), "e")
		if len(v) > maxDigits {
			return false
		}
		n, err := strconv.Atoi(exponent)
		return !has || err == nil && max(n, -n) <= maxExponent
	case []any:
		return !slices.ContainsFunc(v, func(x any) bool { return !bounded(x) })
	case map[string]any:
		for _, x := range v {
			if !bounded(x) {
				return false
			}
		}
	}
	return true
}

// rule is the place in the schema of the first rule that is broken. It has
// words of the schema only: the place in the message could be made of names that
// somebody sent.
func rule(e *jsonschema.ValidationError) string {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	_, place, _ := strings.Cut(e.SchemaURL, "#")
	if words := e.ErrorKind.KeywordPath(); len(words) > 0 {
		place += "/" + strings.Join(words, "/")
	}
	return "#" + place
}
