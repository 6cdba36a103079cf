package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/jobthrottle/jobthrottle/internal/plain"
)

// Error says what is wrong with a configuration, where, and what would be right.
type Error struct {
	File   string // empty for a Config built in code
	Line   int    // from 1; 0 if the key is missing from the file
	Column int    // from 1
	Key    string // such as limits.stripe.rate; empty for broken YAML
	Msg    string
}

// Error says what is wrong, after the file, the line, the column and the key, as far as they are
// known.
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File + ":")
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", e.Line, e.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if e.Key != "" {
		b.WriteString(plain.Text(e.Key) + ": ")
	}
	return b.String() + e.Msg
}

// yamlError converts an error of the YAML library to an Error that names the key and says what
// would be right.
func yamlError(file string, root ast.Node, err error) error {
	yerr, ok := errors.AsType[yaml.Error](err)
	if !ok {
		return &Error{File: file, Msg: unquoted(err.Error())}
	}
	cerr := &Error{File: file, Msg: unquoted(yerr.GetMessage())}
	tok := yerr.GetToken()
	if tok == nil {
		return cerr
	}
	cerr.Line, cerr.Column = tok.Position.Line, tok.Position.Column
	path := pathAt(root, tok)
	cerr.Key = keyOf(path)
	switch e := yerr.(type) {
	case *yaml.UnknownFieldError:
		cerr.Msg = "unknown key"
		if len(path) > 0 {
			cerr.Msg = unknownKey(path)
		}
	case *yaml.TypeError:
		cerr.Msg = fmt.Sprintf("invalid value %q: want %s", tok.Value, kindName(e.DstType))
		if e.DstType.Kind() == reflect.String { // perhaps a password
			cerr.Msg = "invalid value: want a string" + likeThis(path) + "; " + quote
		}
	case *yaml.OverflowError:
		cerr.Msg = fmt.Sprintf("invalid value %q: want %s", e.SrcNum, kindName(e.DstType))
	case *yaml.UnexpectedNodeTypeError:
		cerr.Msg = "invalid value: want " + nodeName(e.Expected) + likeThis(path)
	}
	return cerr
}

// unquoted is a message of the YAML library without the values that it quotes. A value may be a
// password that begins with a special character.
func unquoted(msg string) string {
	switch {
	case strings.HasPrefix(msg, "',' or '}' must be specified"), strings.HasPrefix(msg, "',' or ']' must be specified"):
		return msg + "; between { } and [ ], " + quote
	case strings.HasPrefix(msg, "value is not allowed in this context"):
		return msg + ": indent it like the keys beside it, or " + quote + ", and one that begins with *"
	case strings.HasPrefix(msg, `found character '	'`):
		return "a tab: indent with spaces"
	}
	for _, begin := range []string{"could not find alias", "cannot find anchor by alias name", "invalid header option"} {
		if strings.HasPrefix(msg, begin) {
			return begin + ": put a value that begins with *, &, | or > between quotes"
		}
	}
	return msg
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "keys and values"
	}
	return "a " + t.Kind().String()
}

func nodeName(t ast.NodeType) string {
	switch t {
	case ast.MappingType, ast.MappingValueType:
		return "keys and values"
	case ast.SequenceType:
		return "a list"
	}
	return "a " + strings.ToLower(t.YAMLName())
}

// typeAt returns the type of what a Config has at path.
func typeAt(path []string) reflect.Type {
	t := reflect.TypeFor[Config]()
	for _, name := range path {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch t.Kind() {
		case reflect.Map, reflect.Slice:
			t = t.Elem()
		case reflect.Struct:
			for f := range t.Fields() {
				if f.Tag.Get("yaml") == name {
					t = f.Type
					break
				}
			}
		}
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// knownKeys returns the keys that the section of a Config at path may have.
func knownKeys(path []string) []string {
	t := typeAt(path)
	if t.Kind() != reflect.Struct {
		return nil
	}
	var keys []string
	for f := range t.Fields() {
		if tag := f.Tag.Get("yaml"); tag != "-" {
			keys = append(keys, tag)
		}
	}
	return keys
}

// keyOf writes a path as errors show it: pools[0].queues.default.
func keyOf(path []string) string {
	var b strings.Builder
	for _, name := range path {
		if b.Len() > 0 && !strings.HasPrefix(name, "[") {
			b.WriteByte('.')
		}
		b.WriteString(name)
	}
	return b.String()
}

// pathAt returns the path of the key or value that the token begins, or else of the last that begins before it.
func pathAt(root ast.Node, tok *token.Token) (found []string) {
	exact := false
	eachPath(root, nil, func(path []string, key, value *token.Token) {
		switch {
		case exact:
		case sameToken(key, tok) || sameToken(value, tok):
			found, exact = path, true
		case before(value, tok):
			found = path
		}
	})
	return found
}

func before(a, b *token.Token) bool {
	return a != nil && (a.Position.Line < b.Position.Line || a.Position.Line == b.Position.Line && a.Position.Column < b.Position.Column)
}

func sameToken(a, b *token.Token) bool {
	return a != nil && a.Position.Line == b.Position.Line && a.Position.Column == b.Position.Column
}

// positionOf returns the position of the key's value, or of the key itself if that is a
// section. For a key that is missing in the file it is the position of its section, or 0, 0 if
// that is missing as well.
func positionOf(root ast.Node, key string) (line, column int) {
	longest := -1
	eachPath(root, nil, func(path []string, keyTok, value *token.Token) {
		k := keyOf(path)
		if len(k) <= longest || k != key && !strings.HasPrefix(key, k+".") && !strings.HasPrefix(key, k+"[") {
			return
		}
		tok := value
		if keyTok != nil && (k != key || len(knownKeys(path)) > 0) {
			tok = keyTok
		}
		longest = len(k)
		line, column = tok.Position.Line, tok.Position.Column
	})
	return line, column
}

// eachPath calls f for every key and list element below n, parents first. Key
// is nil for elements.
func eachPath(n ast.Node, path []string, f func(path []string, key, value *token.Token)) {
	visit := func(name string, key *token.Token, value ast.Node) {
		p := append(path[:len(path):len(path)], name)
		f(p, key, firstToken(value))
		eachPath(value, p, f)
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, v := range n.Values {
			eachPath(v, path, f)
		}
	case *ast.MappingValueNode:
		visit(n.Key.GetToken().Value, n.Key.GetToken(), n.Value)
	case *ast.SequenceNode:
		for i, v := range n.Values {
			visit(fmt.Sprintf("[%d]", i), nil, v)
		}
	case *ast.AnchorNode:
		eachPath(n.Value, path, f)
	}
}

// firstToken is the first token of a node. The own token of a block mapping is its first colon.
func firstToken(n ast.Node) *token.Token {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken()
	case *ast.AnchorNode:
		return firstToken(n.Value)
	}
	return n.GetToken()
}
