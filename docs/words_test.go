package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/worker/metrics"
)

// forbidden are the words that the glossary has better ones for, each with the
// better one: the last column of its tables.
func forbidden(t *testing.T) map[string]string {
	t.Helper()
	words, tables := map[string]string{}, 0
	for _, line := range readPage(t, "glossary.md").lines {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| ---") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		better, last := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[len(cells)-1])
		if last == "not" {
			tables++
			continue
		}
		for word := range strings.SplitSeq(last, ",") {
			if word = strings.TrimSpace(word); word != "" {
				words[word] = better
			}
		}
	}
	if len(words) < 25 || tables != 2 {
		t.Fatalf("the glossary has %d tables, which forbid %v", tables, words)
	}
	return words
}

// exceptions are the uses of forbidden words that are right: idioms, the company
// Slack, names in Go, and a key of an earlier version in Redis.
var exceptions = regexp.MustCompile(strings.Join([]string{
	`(?i:in place of|in (?:its|their) place|takes? (?:the|its|their) place)\b`,
	`Slack|\x60slack\x60|slack\.com|(?:,|\|) slack`,
	`Ticket|slack (?:is how much longer|only says)`,
	`:parked:places`,
}, "|"))

// checker finds the words that the glossary has better ones for.
type checker struct {
	t     *testing.T
	words map[string]string // the better one of each
	match *regexp.Regexp
}

func newChecker(t *testing.T) checker {
	t.Helper()
	words := forbidden(t)
	var alternatives []string
	for word := range words {
		alternatives = append(alternatives, regexp.QuoteMeta(word))
	}
	slices.Sort(alternatives)
	return checker{t, words, regexp.MustCompile(`(?i)\b(` + strings.Join(alternatives, "|") + `)\b`)}
}

// check reports each forbidden word of a text.
func (c checker) check(where any, text string) {
	c.t.Helper()
	plain := exceptions.ReplaceAllString(strings.NewReplacer("_", " ", "\n", " ").Replace(text), "")
	for _, word := range c.match.FindAllString(plain, -1) {
		c.t.Errorf("%v says %q, the glossary %q: %s", where, word, c.words[strings.ToLower(word)], strings.TrimSpace(text))
	}
}

// checkFile checks each line of a file.
func (c checker) checkFile(path string) {
	c.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		c.check(fmt.Sprintf("%s:%d", path, number), line)
	}
}

// checkGo checks a Go file: its comments, the sentences in its strings and, if
// programs outside of this module can import it, its exported names.
func (c checker) checkGo(path string) {
	c.t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, group := range file.Comments {
		c.check(set.Position(group.Pos()), group.Text())
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil && strings.Contains(text, " ") {
				c.check(set.Position(n.Pos()), text)
			}
		}
		return true
	})
	if public(path) && !strings.HasSuffix(path, "_test.go") {
		for name := range exported(file) {
			c.check(set.Position(name.Pos()), spaced(name.Name))
		}
	}
}

// TestWordsOfPages: pages use the words of the glossary. So does the output of
// commands that they show.
func TestWordsOfPages(t *testing.T) {
	c := newChecker(t)
	for _, p := range readPages(t) {
		if p.path == "glossary.md" {
			continue
		}
		for _, line := range p.lines {
			c.check(p.path, line)
		}
		for _, b := range p.blocks {
			if b.lang == "text" {
				c.check(b, b.text)
			}
		}
	}
}

// TestWordsOfTheCode: what commands, errors, logs and tests say, what the Go API is
// called, the comments, the examples and the Lua scripts use the words of the
// glossary.
func TestWordsOfTheCode(t *testing.T) {
	c := newChecker(t)
	programs, examples, scripts := 0, 0, 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		switch name := d.Name(); {
		case name == "words_test.go": // it has to name them
		case name == "example_test.go":
			examples++
			c.checkFile(path)
		case strings.HasSuffix(name, ".go"):
			programs++
			c.checkGo(path)
		case strings.HasSuffix(name, ".lua"):
			scripts++
			c.checkFile(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if programs < 300 || examples < 5 || scripts < 40 {
		t.Errorf("only %d programs, %d examples, %d scripts", programs, examples, scripts)
	}
}

// operatorFiles are files that operators read, beside the pages.
var operatorFiles = []string{
	"alerts.yaml", "grafana-dashboard.json", "*.svg", "../*.svg",
	"../RELIABILITY.md", "../BENCHMARKS.md", "../ADAPTIVE.md",
	"../config.yaml", "../compose.yaml", "../Dockerfile",
	"../deploy/*.yaml", "../deploy/*/*", "../examples/server/limits.yaml",
	"../worker/admin/page/*.js", "../worker/admin/page/*.html",
}

// TestWordsOfOperators: so do the alerts, the dashboards, the pictures, the files
// of a deployment, the names of metrics and the keys of the configuration.
func TestWordsOfOperators(t *testing.T) {
	c := newChecker(t)
	for _, pattern := range operatorFiles {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Errorf("%s: no files (%v)", pattern, err)
		}
		for _, path := range paths {
			c.checkFile(path)
		}
	}
	descs := make(chan *prometheus.Desc, 100)
	metrics.NewCollector(nil).Describe(descs)
	close(descs)
	n := 0
	for d := range descs {
		n++
		c.check("metric", d.String())
	}
	eachKey("", reflect.TypeFor[config.Config](), func(key, _ string) {
		n++
		c.check("key", key)
	})
	if n < 80 {
		t.Errorf("only %d metrics and keys", n)
	}
}

// public tells whether programs outside of this module can import the package of a file.
func public(path string) bool {
	dir := filepath.ToSlash(filepath.Dir(path)) + "/"
	return !strings.Contains(dir, "/internal/") && !strings.Contains(dir, "/cmd/") && !strings.Contains(dir, "/bench/") && !strings.Contains(dir, "/.ci/")
}

// exported yields the exported names that a file declares.
func exported(file *ast.File) iter.Seq[*ast.Ident] {
	return func(yield func(*ast.Ident) bool) {
		ast.Inspect(file, func(n ast.Node) bool {
			var names []*ast.Ident
			switch n := n.(type) {
			case *ast.FuncDecl:
				names = []*ast.Ident{n.Name}
			case *ast.TypeSpec:
				names = []*ast.Ident{n.Name}
			case *ast.ValueSpec:
				names = n.Names
			case *ast.Field:
				names = n.Names
			}
			for _, name := range names {
				if name.IsExported() && !yield(name) {
					return false
				}
			}
			return true
		})
	}
}

// spaced is a name in camel case as words.
func spaced(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return b.String()
}
