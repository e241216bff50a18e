// Package strictyaml reads files that people write in YAML. Whatever a reader
// of the file would not expect is an error, and an error names line and column.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/prometheus/common/model"
)

// ErrEmpty is returned for a file that says nothing.
var ErrEmpty = errors.New("the file is empty")

// Decode reads text into a struct. A key that the struct does not have, a key
// that is there twice, a value of another type and a second document are errors.
func Decode(text []byte, into any) error {
	err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(into)
	switch {
	case errors.Is(err, io.EOF):
		return ErrEmpty
	case err != nil:
		return errors.New(yaml.FormatError(err, false, false) + hint(err))
	}
	if f, err := parser.ParseBytes(text, 0); err == nil && len(f.Docs) > 1 && f.Docs[1].Body != nil {
		p := f.Docs[1].Body.GetToken().Position
		return fmt.Errorf("[%d:%d] a second document begins behind ---: put everything into the first", p.Line, p.Column)
	}
	return nil
}

// hint helps where the reader of YAML takes a word with a colon for a mapping,
// which it does between braces.
func hint(err error) string {
	if e := (*yaml.TypeError)(nil); errors.As(err, &e) && e.DstType.Kind() == reflect.String && e.SrcType.Kind() == reflect.Map {
		return `; between braces a word with a colon in it needs quotes, as in ["header:x-operation-id"]`
	}
	return ""
}

// Place finds where in text a value stands: path is made of the keys (string)
// and indexes (int) that lead to it. For what is not there, it is the place of
// the nearest that is around it. Line and column count from 1; ok is false when
// text cannot be read.
func Place(text []byte, path ...any) (line, column int, ok bool) {
	f, err := parser.ParseBytes(text, 0)
	if err != nil || len(f.Docs) == 0 || f.Docs[0].Body == nil {
		return 0, 0, false
	}
	node := f.Docs[0].Body
	for _, step := range path {
		next := child(node, step)
		if next == nil {
			break
		}
		node = next
	}
	if m, is := node.(*ast.MappingNode); is && len(m.Values) > 0 {
		node = m.Values[0].Key // its own token is the colon
	}
	p := node.GetToken().Position
	return p.Line, p.Column, true
}

func child(node ast.Node, step any) ast.Node {
	switch n := node.(type) {
	case *ast.AnchorNode:
		return child(n.Value, step)
	case *ast.TagNode:
		return child(n.Value, step)
	case *ast.MappingNode:
		for _, v := range n.Values {
			if v.Key.GetToken().Value == step {
				return v.Value
			}
		}
	case *ast.SequenceNode:
		if i, is := step.(int); is && i < len(n.Values) {
			return n.Values[i]
		}
	}
	return nil
}

// wrong is an error at the place of a node.
func wrong(node ast.Node, format string, args ...any) error {
	return &yaml.SyntaxError{Message: fmt.Sprintf(format, args...), Token: node.GetToken()}
}

// scalar returns a value as it stands in the file, without its quotes.
func scalar(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// Text is a text that may look like a number: 0100 stays 0100.
type Text string

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (t *Text) UnmarshalYAML(node ast.Node) error {
	s, ok := scalar(node)
	if !ok {
		return wrong(node, "want a text")
	}
	*t = Text(s)
	return nil
}

// Int is a whole number in decimal digits. Unlike an int it refuses 1.5.
type Int int

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (i *Int) UnmarshalYAML(node ast.Node) error {
	s, _ := scalar(node)
	n, err := strconv.Atoi(s)
	if _, is := node.(*ast.IntegerNode); !is || err != nil {
		return wrong(node, "want a whole number")
	}
	*i = Int(n)
	return nil
}

// Duration is a time span such as 90s, 5m, 14d.
type Duration time.Duration

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (d *Duration) UnmarshalYAML(node ast.Node) error {
	s, ok := scalar(node)
	if !ok {
		return wrong(node, "want a duration such as 90s, 5m or 14d")
	}
	v, err := ParseDuration(s)
	if err != nil {
		return wrong(node, "%s", err)
	}
	*d = Duration(v)
	return nil
}

// ParseDuration reads 90s, 5m, 14d, and the forms of Go such as 1.5s.
func ParseDuration(s string) (time.Duration, error) {
	if v, err := model.ParseDuration(s); err == nil {
		return time.Duration(v), nil
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return 0, fmt.Errorf("duration %q: want a number with a unit, such as 90s, 5m or 14d", s)
	}
	return v, nil
}
