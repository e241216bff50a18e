package predicate

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/redrivehq/redrive/quarantine"
)

var envelopeType = cel.ObjectType("envelope")

// envelope is the variable env.
type envelope struct{ *quarantine.Subject }

// ConvertToNative implements ref.Val.
func (e envelope) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("an envelope is no %s", t)
}

// ConvertToType implements ref.Val.
func (e envelope) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return envelopeType
	}
	return types.NewErr("no such overload")
}

// Equal implements ref.Val.
func (e envelope) Equal(other ref.Val) ref.Val {
	o, ok := other.(envelope)
	return types.Bool(ok && o.No == e.No)
}

// Type implements ref.Val.
func (envelope) Type() ref.Type { return envelopeType }

// Value implements ref.Val.
func (e envelope) Value() any { return e.Subject }

// field is one field of env. Get returns nil when the value is unknown.
type field struct {
	of  *types.Type
	get func(s *quarantine.Subject) ref.Val
}

func text(get func(s *quarantine.Subject) string) field {
	return field{types.StringType, func(s *quarantine.Subject) ref.Val {
		t := get(s)
		if t == "" {
			return nil
		}
		return types.String(t)
	}}
}

func number(get func(s *quarantine.Subject) int64) field {
	return field{types.IntType, func(s *quarantine.Subject) ref.Val {
		n := get(s)
		if n < 0 {
			return nil
		}
		return types.Int(n)
	}}
}

func moment(get func(f *quarantine.Facts) uint64) field {
	return field{types.TimestampType, func(s *quarantine.Subject) ref.Val {
		ms := get(s.Facts)
		if ms == 0 {
			return nil
		}
		return types.Timestamp{Time: time.UnixMilli(int64(ms)).UTC()}
	}}
}

// envelopeFields are the fields of env. They are only ever added: manifests
// keep expressions that name them.
var envelopeFields = map[string]field{
	"id":           text(func(s *quarantine.Subject) string { return s.Facts.ID.String() }),
	"queue":        text(func(s *quarantine.Subject) string { return s.Facts.Queue }),
	"died":         text(func(s *quarantine.Subject) string { return s.Facts.DiedQueue }),
	"reason":       text(func(s *quarantine.Subject) string { return s.Reason }),
	"last_reason":  text(func(s *quarantine.Subject) string { return s.LastReason }),
	"error_code":   text(func(s *quarantine.Subject) string { return s.Facts.ErrorCode }),
	"class":        text(func(s *quarantine.Subject) string { return s.Class }),
	"owner":        text(func(s *quarantine.Subject) string { return s.Owner }),
	"type":         text(func(s *quarantine.Subject) string { return s.Facts.Type }),
	"schema":       text(func(s *quarantine.Subject) string { return s.Facts.Schema }),
	"operation":    text(func(s *quarantine.Subject) string { return s.Facts.Operation }),
	"message_id":   text(func(s *quarantine.Subject) string { return s.Facts.MessageID }),
	"ordering_key": text(func(s *quarantine.Subject) string { return s.Facts.OrderingKey }),
	"sequence":     text(func(s *quarantine.Subject) string { return s.Facts.Sequence }),
	"producer":     text(func(s *quarantine.Subject) string { return s.Facts.Producer }),
	"consumer":     text(func(s *quarantine.Subject) string { return s.Facts.Consumer }),
	"trace_id":     text(func(s *quarantine.Subject) string { return s.Facts.TraceID }),
	"exchange":     text(func(s *quarantine.Subject) string { return s.Facts.Exchange }),
	"routing_key":  text(func(s *quarantine.Subject) string { return s.Facts.RoutingKey }),
	"attempt":      number(func(s *quarantine.Subject) int64 { return int64(s.Facts.Attempt) }),
	"attempts":     number(func(s *quarantine.Subject) int64 { return s.Facts.Attempts }),
	"size":         number(func(s *quarantine.Subject) int64 { return int64(s.Facts.BodySize) }),
	"captured":     moment(func(f *quarantine.Facts) uint64 { return f.Captured }),
	"published":    moment(func(f *quarantine.Facts) uint64 { return f.FirstSeen }),
	"first_died":   moment(func(f *quarantine.Facts) uint64 { return f.FirstDied }),
	"last_died":    moment(func(f *quarantine.Facts) uint64 { return f.Died }),
}

// Fields lists the names of the fields of env, sorted.
func Fields() []string { return slices.Sorted(maps.Keys(envelopeFields)) }

// provider knows the type of env beside the standard ones.
type provider struct{ types.Provider }

// FindStructType implements types.Provider.
func (p provider) FindStructType(name string) (*types.Type, bool) {
	if name == envelopeType.TypeName() {
		return types.NewTypeTypeWithParam(envelopeType), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p provider) FindStructFieldNames(name string) ([]string, bool) {
	if name == envelopeType.TypeName() {
		return Fields(), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (p provider) FindStructFieldType(name, fieldName string) (*types.FieldType, bool) {
	if name != envelopeType.TypeName() {
		return p.Provider.FindStructFieldType(name, fieldName)
	}
	f, ok := envelopeFields[fieldName]
	if !ok {
		return nil, false
	}
	return &types.FieldType{
		Type:  f.of,
		IsSet: func(target any) bool { s, ok := target.(*quarantine.Subject); return ok && f.get(s) != nil },
		GetFrom: func(target any) (any, error) {
			s, ok := target.(*quarantine.Subject)
			if !ok {
				return nil, reasonError("env has no fields here")
			}
			if v := f.get(s); v != nil {
				return v, nil
			}
			switch f.of {
			case types.StringType:
				return types.String(""), nil
			case types.IntType:
				return types.Int(-1), nil
			}
			return nil, reasonError("env." + fieldName + " is not known; ask first with has(env." + fieldName + ")")
		},
	}, true
}

// NewValue implements types.Provider: nobody makes an envelope.
func (p provider) NewValue(name string, values map[string]ref.Val) ref.Val {
	if name == envelopeType.TypeName() {
		return types.NewErr("no such overload")
	}
	return p.Provider.NewValue(name, values)
}
