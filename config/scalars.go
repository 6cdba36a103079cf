package config

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// scalars makes the scalars of a file mean what its reader sees. YAML reads 0123 without quotes
// as a number, so a password 0123 would become "83". Where a Config has a string, such a scalar
// is the text as it is written. Where a Config has a whole number, only a whole number is
// accepted. A 0 is refused where a Config has it for a key that is left out.
type scalars struct {
	anchors map[string]ast.Node // the scalars that the aliases refer to
}

// settle returns the node to decode into a value of type t, instead of n; nil is an unknown
// type.
func (s scalars) settle(n ast.Node, t reflect.Type) (ast.Node, error) {
	if t == reflect.TypeFor[Permits]() {
		t = permitsType(n)
	}
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.NodeUnmarshaler]()) {
		return n, nil
	}
	var err error
	switch n := n.(type) {
	case *ast.AnchorNode:
		s.anchors[n.Name.GetToken().Value] = n.Value
		n.Value, err = s.settle(n.Value, t)
		return n, err
	case *ast.MappingNode:
		for _, v := range n.Values {
			if _, err := s.settle(v, t); err != nil {
				return n, err
			}
		}
		return n, nil
	case *ast.MappingValueNode:
		s.settleKey(n)
		if n.Value, err = s.settle(n.Value, below(t, n.Key)); err != nil {
			return n, err
		}
		return n, s.checkZero(n, t)
	case *ast.SequenceNode:
		for i, v := range n.Values {
			if t.Kind() == reflect.Slice {
				if n.Values[i], err = s.settle(v, t.Elem()); err != nil {
					return n, err
				}
			}
		}
		return n, nil
	}
	switch t.Kind() {
	case reflect.String:
		return s.asWritten(n), nil
	case reflect.Int, reflect.Int64:
		return n, s.checkWhole(n)
	}
	return n, nil
}

// settleKey makes a key a string: all keys of a Config are strings.
func (s scalars) settleKey(n *ast.MappingValueNode) {
	if marked, ok := n.Key.(*ast.MappingKeyNode); ok {
		marked.Value = s.asWritten(marked.Value)
		return
	}
	if key, ok := s.asWritten(n.Key).(ast.MapKeyNode); ok {
		n.Key = key
	}
}

// below is the type of the value that belongs to a key of a value of type t.
func below(t reflect.Type, key ast.MapKeyNode) reflect.Type {
	switch {
	case key.IsMergeKey():
		return t
	case t.Kind() == reflect.Map:
		return t.Elem()
	case t.Kind() == reflect.Struct:
		for f := range t.Fields() {
			if f.Tag.Get("yaml") == key.GetToken().Value {
				return f.Type
			}
		}
	}
	return nil
}

// asWritten returns a string with the text of a scalar that YAML reads as something else. Null
// stays: it means a value that is left out.
func (s scalars) asWritten(n ast.Node) ast.Node {
	if _, alias := n.(*ast.AliasNode); !alias {
		return text(n)
	}
	if scalar, ok := text(s.scalarOf(n)).(*ast.StringNode); ok {
		copied := ast.String(n.GetToken())
		copied.Value = scalar.Value
		return copied
	}
	return n
}

func text(n ast.Node) ast.Node {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode, *ast.BoolNode:
		return ast.String(n.GetToken())
	}
	return n
}

// scalarOf returns n, or the node that it refers to if it is an alias.
func (s scalars) scalarOf(n ast.Node) ast.Node {
	alias, ok := n.(*ast.AliasNode)
	if !ok {
		return n
	}
	return s.anchors[alias.Value.GetToken().Value]
}

var decimal = regexp.MustCompile(`^[-+]?(0|[1-9][0-9_]*)$`)

// checkWhole refuses a scalar that is no whole number. It also refuses one that is another
// number in YAML 1.1, where 010 is 8, than in YAML 1.2.
func (s scalars) checkWhole(n ast.Node) error {
	scalar := s.scalarOf(n)
	value, ok := text(scalar).(*ast.StringNode)
	if !ok || decimal.MatchString(value.Value) {
		return nil // the decoder refuses what is no scalar, or too large
	}
	want := "a whole number"
	if _, err := strconv.ParseInt(value.Value, 0, 64); err == nil || strings.Trim(value.Value, "0123456789") == "" && value.Value != "" {
		want += " in decimal, without zeros before it"
	}
	shown := scalar.GetToken().Value
	if alias, ok := n.(*ast.AliasNode); ok { // perhaps of a password
		shown = "*" + alias.Value.GetToken().Value
	}
	return &yaml.SyntaxError{Message: fmt.Sprintf("invalid value %q: want %s", shown, want), Token: n.GetToken()}
}

// withoutZero are the keys whose 0 a Config takes for the default. Who writes 0 wants something
// else: perhaps no wait at all.
var withoutZero = map[string]string{
	"max_pause":   "invalid duration 0s: want more than 0",
	"max_wait":    "invalid duration 0s: want more than 0",
	"max_waiting": fmt.Sprintf("invalid number 0: want 1 to %d jobs", maxWaiting),
	"lease":       "invalid duration 0s: want 3s to 24h, in whole milliseconds",
}

// checkZero refuses the value 0 of a key of withoutZero in a section of type t.
func (s scalars) checkZero(n *ast.MappingValueNode, t reflect.Type) error {
	msg, ok := withoutZero[n.Key.GetToken().Value]
	if !ok || t.Kind() != reflect.Struct {
		return nil
	}
	value := n.Value
	if anchor, ok := value.(*ast.AnchorNode); ok {
		value = anchor.Value
	}
	scalar, ok := text(s.scalarOf(value)).(*ast.StringNode)
	if !ok {
		return nil
	}
	if d, err := time.ParseDuration(scalar.Value); err != nil || d != 0 {
		return nil // the decoder refuses what is no duration or no number
	}
	return &yaml.SyntaxError{Message: msg, Token: value.GetToken()}
}
