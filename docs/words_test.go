package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// forbidden are the words that the glossary has better ones for, each with the
// better one.
func forbidden(t *testing.T) map[string]string {
	t.Helper()
	words := map[string]string{}
	for _, line := range readPage(t, "glossary.md").lines {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| term") {
			continue
		}
		for word := range strings.SplitSeq(cells[3], ",") {
			if word = strings.TrimSpace(word); word != "" {
				words[word] = strings.TrimSpace(cells[1])
			}
		}
	}
	if len(words) < 10 {
		t.Fatalf("the glossary forbids only %v", words)
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

// TestReadability: who speaks English as a second language can read the pages
// that everybody meets. The formula is that of Flesch and Kincaid, whose grade is
// about the years at school that a reader needs.
func TestReadability(t *testing.T) {
	for _, path := range []string{"../README.md", "getting-started.md", "operating.md"} {
		grade, n := readingGrade(prose(readPage(t, path)))
		t.Logf("%s: grade %.1f, %d words", path, grade, n)
		if grade > 9 || n < 300 {
			t.Errorf("%s: grade %.1f of %d words; 9 is the most", path, grade, n)
		}
	}
	for text, want := range map[string]float64{
		"The cat sat on the mat. ":                                  -1.45, // 6 words, one syllable each: 0.39*6 + 11.8*1 - 15.59
		"Every permit is written to Redis before anybody uses it. ": 11.3,  // 10 words, 19 or 20 syllables
	} {
		if got, _ := readingGrade(text); got < want-1.5 || got > want+1.5 {
			t.Errorf("%q: grade %.2f, want about %.2f", text, got, want)
		}
	}
}

var (
	inlineCode = regexp.MustCompile("`[^`]*`")
	linkTo     = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	listMark   = regexp.MustCompile(`^\s*([-*]|\d+\.)\s+`)
	wordOf     = regexp.MustCompile(`[A-Za-z][A-Za-z'’-]*`)
	sentence   = regexp.MustCompile(`[.!?:](\s|$)`)
	vowels     = regexp.MustCompile(`[aeiouy]+`)
)

// prose is what a page says in sentences: no code, tables, pictures or headings.
func prose(p page) string {
	var b strings.Builder
	for _, line := range p.lines {
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "", listMark.MatchString(line):
			b.WriteString(". ") // a paragraph or an item ends here
		case strings.HasPrefix(trimmed, "|"), strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "!["):
			continue
		}
		line = linkTo.ReplaceAllString(inlineCode.ReplaceAllString(line, "it"), "$1")
		b.WriteString(listMark.ReplaceAllString(line, "") + " ")
	}
	return b.String()
}

// readingGrade is the grade by Flesch and Kincaid, 0.39 words a sentence + 11.8
// syllables a word - 15.59, and how many words it rests on.
func readingGrade(text string) (float64, int) {
	words, syllables, sentences := 0, 0, 0
	for _, s := range sentence.Split(text, -1) {
		ws := wordOf.FindAllString(s, -1)
		if len(ws) == 0 {
			continue
		}
		sentences++
		words += len(ws)
		for _, w := range ws {
			syllables += syllablesOf(strings.ToLower(w))
		}
	}
	if words == 0 {
		return 0, 0
	}
	return 0.39*float64(words)/float64(sentences) + 11.8*float64(syllables)/float64(words) - 15.59, words
}

// syllablesOf counts the groups of vowels of a word but for a silent e at its end.
func syllablesOf(word string) int {
	n := len(vowels.FindAllString(word, -1))
	if strings.HasSuffix(word, "e") && !strings.HasSuffix(word, "le") || strings.HasSuffix(word, "ed") && !strings.HasSuffix(word, "ted") && !strings.HasSuffix(word, "ded") {
		n--
	}
	return max(n, 1)
}
