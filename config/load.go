package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Load reads and validates a file. If its contents are wrong, the error is an [*Error].
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return Parse(path, data)
}

// Parse reads and validates the contents of a file. Errors call the file name. Missing keys have
// the values of [Default], and unknown keys are refused. ${NAME} in a string value is replaced by
// the environment variable NAME, or by nothing if that is not set. A string value with any other ${
// is refused. If the contents are wrong, the error is an [*Error].
func Parse(name string, data []byte) (*Config, error) {
	cfg := Default()
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // some editors begin a file with this mark
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, yamlError(name, nil, err)
	}
	var root ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.NullType || doc.Body.Type() == ast.CommentType {
			continue
		}
		if root != nil {
			at := doc.Body.GetToken().Position
			return nil, &Error{File: name, Line: at.Line, Column: at.Column, Msg: "a second YAML document: want one"}
		}
		root = doc.Body
	}
	if root == nil {
		return cfg, nil // an empty file: the defaults, which are valid
	}
	if tag := tagIn(root); tag != nil {
		at := tag.Start.Position
		return nil, &Error{File: name, Line: at.Line, Column: at.Column, Msg: tagName(tag) + ": want the value without it"}
	}
	var env envExpander
	if ast.Walk(&env, root); env.broken != nil {
		return nil, yamlError(name, root, &yaml.SyntaxError{Message: invalidReference, Token: env.broken})
	}
	cfg.unset = env.unset(root)
	if err := cfg.decode(name, root); err != nil {
		if cerr, ok := errors.AsType[*Error](err); ok && cerr.Key != "" {
			cerr.Msg += cfg.UnsetIn(cerr.Key)
		}
		return nil, err
	}
	cfg.warnings = cfg.Warnings()
	for _, w := range cfg.warnings {
		w.File = name
		w.Line, w.Column = positionOf(root, w.Key)
	}
	return cfg, nil
}

// decode reads and validates a file whose references are replaced.
func (c *Config) decode(name string, root ast.Node) error {
	root, err := (scalars{anchors: map[string]ast.Node{}}).settle(root, reflect.TypeFor[Config]())
	if err != nil {
		return yamlError(name, root, err)
	}
	if err := yaml.NodeToValue(root, c, yaml.Strict()); err != nil {
		return yamlError(name, root, err)
	}
	err = c.Validate()
	if cerr, ok := errors.AsType[*Error](err); ok {
		cerr.File = name
		cerr.Line, cerr.Column = positionOf(root, cerr.Key)
	}
	return err
}

// tagIn returns the first tag, such as !!int, or nil. No value of a configuration needs a tag.
func tagIn(root ast.Node) *ast.TagNode {
	for _, n := range ast.Filter(ast.TagType, root) {
		return n.(*ast.TagNode)
	}
	return nil
}

// tagName names one of YAML's own tags. Any other may be a password.
func tagName(tag *ast.TagNode) string {
	switch name := tag.Start.Value; name {
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq", "!!binary", "!!timestamp", "!!merge", "!!set", "!!omap":
		return "the tag " + name
	}
	return "a tag, or a value that begins with ! and has no quotes"
}

var envReference = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

const invalidReference = "invalid reference: want ${NAME}, with only letters, digits and _ in NAME; if the text itself contains ${, put it into an environment variable"

// envExpander replaces ${NAME} in string values, never in keys. The tokens keep the text of the
// file, which errors quote.
type envExpander struct {
	broken  *token.Token // of the first value with a ${ that begins no ${NAME}
	missing []reference  // to variables that are not set
}

// reference is a ${NAME} in the value that begins at a token.
type reference struct {
	name string // with the ${ and }
	at   *token.Token
}

func (e *envExpander) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.MappingValueNode:
		ast.Walk(e, n.Value)
		return nil
	case *ast.LiteralNode:
		e.expand(n.Value, n.Start)
		return nil
	case *ast.StringNode:
		e.expand(n, n.Token)
	}
	return e
}

// expand replaces the references in a value that begins at a token. It checks what is written
// before that: a variable may contain anything.
func (e *envExpander) expand(n *ast.StringNode, at *token.Token) {
	if e.broken == nil && strings.Contains(envReference.ReplaceAllLiteralString(n.Value, " "), "${") {
		e.broken = at
	}
	n.Value = envReference.ReplaceAllStringFunc(n.Value, func(ref string) string {
		value, set := os.LookupEnv(ref[2 : len(ref)-1])
		if !set {
			e.missing = append(e.missing, reference{ref, at})
		}
		return value
	})
}

// unsetVariable is a variable that a value refers to and that is not set.
type unsetVariable struct{ key, name string }

// unset returns the variables that are not set, with the keys whose values refer to them.
func (e *envExpander) unset(root ast.Node) []unsetVariable {
	var all []unsetVariable
	for _, ref := range e.missing {
		all = append(all, unsetVariable{keyOf(pathAt(root, ref.at)), ref.name})
	}
	return all
}

// UnsetIn returns which environment variables the file refers to that were not set when it was
// read, in the values of these keys, such as redis.password, and of those below them. It is for
// the end of an error: " (${NAME} is not set in the environment)", or "" if there are none.
func (c *Config) UnsetIn(keys ...string) string {
	var names []string
	for _, v := range c.unset {
		in := func(key string) bool {
			rest, found := strings.CutPrefix(v.key, key)
			return found && (rest == "" || rest[0] == '.' || rest[0] == '[')
		}
		if slices.ContainsFunc(keys, in) && !slices.Contains(names, v.name) {
			names = append(names, v.name)
		}
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" (%s is not set in the environment)", names[0])
	}
	return fmt.Sprintf(" (%s are not set in the environment)", strings.Join(names, " and "))
}

// UnmarshalYAML reads a duration such as 2s. 0 needs no unit.
func (d *Duration) UnmarshalYAML(n ast.Node) error {
	v, err := time.ParseDuration(scalarText(n))
	if err != nil {
		return &yaml.SyntaxError{Message: invalidDuration(n.GetToken().Value), Token: n.GetToken()}
	}
	*d = Duration(v)
	return nil
}

func invalidDuration(s string) string {
	return fmt.Sprintf("invalid duration %q: want a number and a unit, such as 500ms, 2s or 15m", s)
}

func scalarText(n ast.Node) string {
	if s, ok := n.(*ast.StringNode); ok {
		return s.Value
	}
	return n.GetToken().Value
}
