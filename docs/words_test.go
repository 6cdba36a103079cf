package docs_test

import (
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

// company is a name that is also a word: Slack, whose preset is called slack.
var company = strings.NewReplacer("Slack", "", "`slack`", "", "| slack", "")

// matcher finds any of the words in a text.
func matcher(words map[string]string) *regexp.Regexp {
	var alternatives []string
	for word := range words {
		alternatives = append(alternatives, regexp.QuoteMeta(word))
	}
	slices.Sort(alternatives)
	return regexp.MustCompile(`(?i)\b(` + strings.Join(alternatives, "|") + `)\b`)
}

// TestWordsOfPages: pages use the words of the glossary.
func TestWordsOfPages(t *testing.T) {
	words := forbidden(t)
	match := matcher(words)
	for _, p := range readPages(t) {
		if p.path == "glossary.md" {
			continue
		}
		for _, line := range p.lines {
			for _, w := range match.FindAllString(company.Replace(line), -1) {
				t.Errorf("%s says %q, the glossary %q: %s", p.path, w, words[strings.ToLower(w)], line)
			}
		}
	}
}

// TestWordsOfTheCode: what commands, errors, logs and metrics say, and what the
// Go API is called, uses the words of the glossary.
func TestWordsOfTheCode(t *testing.T) {
	words := forbidden(t)
	match := matcher(words)
	files := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && strings.Contains(text, " ") {
					for _, w := range match.FindAllString(company.Replace(text), -1) {
						t.Errorf("%s says %q, the glossary %q", set.Position(n.Pos()), w, words[strings.ToLower(w)])
					}
				}
			}
			return true
		})
		if !public(path) {
			return nil
		}
		for name := range exported(file) {
			if w := match.FindString(spaced(name.Name)); w != "" {
				t.Errorf("%s: %s; the glossary says %q", set.Position(name.Pos()), name.Name, words[strings.ToLower(w)])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("only %d files", files)
	}
}

// TestWordsOfOperators: so do the alerts, the dashboard, the names of metrics and
// the keys of the configuration.
func TestWordsOfOperators(t *testing.T) {
	words := forbidden(t)
	match := matcher(words)
	check := func(where, text string) {
		for _, w := range match.FindAllString(strings.ReplaceAll(text, "_", " "), -1) {
			t.Errorf("%s: %q; the glossary says %q", where, w, words[strings.ToLower(w)])
		}
	}
	for _, path := range []string{"alerts.yaml", "grafana-dashboard.json", "../config.yaml", "../deploy/config.yaml", "../RELIABILITY.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			check(path, line)
		}
	}
	descs := make(chan *prometheus.Desc, 100)
	metrics.NewCollector(nil).Describe(descs)
	close(descs)
	n := 0
	for d := range descs {
		n++
		check("metric", d.String())
	}
	eachKey("", reflect.TypeFor[config.Config](), func(key, _ string) {
		n++
		check("key", key)
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
