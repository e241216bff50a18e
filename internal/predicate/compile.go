package predicate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"

	"github.com/redrivehq/redrive/quarantine"
	"github.com/redrivehq/redrive/quarantine/amqpwire"
)

// Language is the language of conditions, and the version of what stands in
// its environment.
const Language = "cel/1"

// Limits of conditions.
const (
	MaxText    = 2 << 10 // bytes of an expression
	MaxPattern = 256     // bytes of a regular expression
	// MaxBody is the size in bytes of the largest body that a condition looks
	// into. A larger one is an error.
	MaxBody = 1 << 20
	// MaxCost is what one evaluation may cost, in the units of the language: one
	// for each operation, and one for each ten bytes of text that it walks through.
	MaxCost = 1_000_000
	// maxRegex bounds the program of a compiled regular expression.
	maxRegex = 10_000
	// maxMemory bounds the elements of one value, those that it shares with others
	// or has several times included: that is what a comparison walks through. The
	// largest body has less.
	maxMemory = 2_000_000
	// maxTime bounds one evaluation. What takes that long is refused, so that it
	// decides nothing by the speed of the machine.
	maxTime = 5 * time.Second
)

// Engine implements quarantine.Predicates.
type Engine struct{ env *cel.Env }

// New makes an Engine.
func New() (*Engine, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, fmt.Errorf("set up the expression language: %w", err)
	}
	env, err := cel.NewEnv(
		cel.CustomTypeProvider(provider{registry}), cel.CustomTypeAdapter(registry),
		cel.Variable("env", envelopeType),
		cel.Variable("headers", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("properties", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("body", cel.DynType),
		cel.Variable("now", cel.TimestampType),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(MaxText), cel.ParserRecursionLimit(64),
		cel.RegexProgramSizeLimit(maxRegex),
	)
	if err != nil {
		return nil, fmt.Errorf("set up the expression language: %w", err)
	}
	return &Engine{env: env}, nil
}

// Language implements quarantine.Predicates.
func (*Engine) Language() string { return Language }

// Compile implements quarantine.Predicates.
func (e *Engine) Compile(text string, now time.Time) (quarantine.Predicate, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("the expression has %d bytes, at most %d are taken", len(text), MaxText)
	}
	tree, issues := e.env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("the expression is wrong: %w", err)
	}
	if tree.OutputType() != cel.BoolType {
		return nil, fmt.Errorf("the expression is of type %s, want bool: compare it with something", tree.OutputType())
	}
	used, err := look(tree)
	if err != nil {
		return nil, err
	}
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize), cel.InterruptCheckFrequency(1), cel.MemoryLimit(maxMemory),
		cel.MemoryTracking(types.MemoryTrackerSizeCalculator(types.NewSizeCalculator(
			types.SizeCalculatorMaxDepth(2*maxDepth), types.SizeCalculatorMaxTraversal(maxMemory))))}
	bounded, err := e.affordable(tree)
	if err != nil {
		return nil, err
	}
	if !bounded {
		options = append(options, cel.CostLimit(MaxCost))
	}
	program, err := e.env.Program(tree, options...)
	if err != nil {
		return nil, fmt.Errorf("the expression is wrong: %w", err)
	}
	return &condition{program: program, used: used, now: types.Timestamp{Time: now.UTC()}}, nil
}

// affordable refuses what is known to cost too much. Bounded is false when the
// cost depends on the content of messages.
func (e *Engine) affordable(tree *cel.Ast) (bounded bool, err error) {
	c, err := e.env.EstimateCost(tree, sizes{})
	if err != nil {
		return false, fmt.Errorf("estimate what the expression costs: %w", err)
	}
	if c.Min > MaxCost || c.Max > MaxCost && c.Max != math.MaxUint64 && !content(tree) {
		return false, fmt.Errorf("the expression costs up to %d for one envelope, at most %d is allowed: make it simpler", c.Max, MaxCost)
	}
	return c.Max <= MaxCost, nil
}

// sizes tells how long the fields of an envelope can be.
type sizes struct{}

// EstimateSize implements cost.Estimator.
func (sizes) EstimateSize(n cost.AstNode) *cost.SizeEstimate {
	if p := n.Path(); len(p) > 0 && p[0] == "env" {
		s := cost.RangedSizeEstimate(0, maxField)
		return &s
	}
	return nil
}

// EstimateCallCost implements cost.Estimator.
func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate { //nolint:gocritic // the interface has it so
	return nil
}

// maxField is how many bytes a field of an envelope has at most.
const maxField = 512

// uses is what of an envelope an expression looks at.
type uses struct{ properties, body bool }

func content(tree *cel.Ast) bool {
	u, err := look(tree)
	return err == nil && (u.properties || u.body)
}

// look finds what an expression uses, and refuses regular expressions that are
// not constants: a message must not bring its own.
func look(tree *cel.Ast) (u uses, err error) {
	ast.PostOrderVisit(tree.NativeRep().Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		switch x.Kind() {
		case ast.IdentKind:
			switch x.AsIdent() {
			case "headers", "properties":
				u.properties = true
			case "body":
				u.body = true
			}
		case ast.CallKind:
			if call := x.AsCall(); call.FunctionName() == "matches" && err == nil {
				err = pattern(call.Args())
			}
		}
	}))
	return u, err
}

func pattern(args []ast.Expr) error {
	last := args[len(args)-1]
	if last.Kind() != ast.LiteralKind {
		return errors.New("the pattern of matches has to be a constant")
	}
	if s, ok := last.AsLiteral().Value().(string); ok && len(s) > MaxPattern {
		return fmt.Errorf("the pattern of matches has %d bytes, at most %d are taken", len(s), MaxPattern)
	}
	return nil
}

// condition implements quarantine.Predicate.
type condition struct {
	program cel.Program
	used    uses
	now     types.Timestamp
}

// Content implements quarantine.Predicate.
func (c *condition) Content() bool { return c.used.properties || c.used.body }

// Match implements quarantine.Predicate.
func (c *condition) Match(s quarantine.Subject) (bool, error) {
	vars := map[string]any{"env": envelope{&s}, "now": c.now, "headers": noEntries, "properties": noEntries, "body": types.NullValue}
	if s.Original != nil && c.used.properties {
		view := amqpwire.Parse(s.Original.Properties)
		vars["headers"], vars["properties"] = fields(view.Headers), properties(&view)
	}
	if s.Original != nil && c.used.body {
		body, err := parseBody(s.Original.Body)
		if err != nil {
			return false, err
		}
		vars["body"] = body
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxTime)
	defer cancel()
	out, _, err := c.program.ContextEval(ctx, vars)
	if err != nil {
		return false, said(err)
	}
	yes, ok := out.Value().(bool)
	if !ok {
		return false, errors.New("it gives neither true nor false")
	}
	return yes, nil
}

// reasonError is an error of this package: its words are fixed.
type reasonError string

func (e reasonError) Error() string { return string(e) }

// said puts an error of an evaluation into words that hold nothing of the
// message: the words of the library quote values.
func said(err error) error {
	var own reasonError
	if errors.As(err, &own) {
		return own
	}
	for _, x := range []struct{ has, say string }{
		{"no such key", "a name that it asks for is not there; ask first with has(a.b), or with \"b\" in a"},
		{"no such attribute", "a name that it asks for is not there; ask first with has(a.b), or with \"b\" in a"},
		{"index out of bounds", "an element that it asks for is not there; ask first with size()"},
		{"no such overload", "a value has another type than the one that it is used as; ask first with type()"},
		{"unsupported index type", "a list is used as an object; ask first with type()"},
		{"cost limit", "it takes more work than is allowed for one message"},
		{"interrupted", "it takes more time than is allowed for one message"},
		{"memory limit", "it takes more memory than is allowed for one message"},
		{"division by zero", "it divides by zero"},
		{"modulus by zero", "it divides by zero"},
		{"overflow", "a number gets too large"},
		{"range", "a number gets too large"},
		{"conversion", "a value cannot be converted"},
		{"parsing", "a value cannot be converted"},
	} {
		if strings.Contains(err.Error(), x.has) {
			return reasonError(x.say)
		}
	}
	return reasonError("a value cannot be used as it is here")
}
