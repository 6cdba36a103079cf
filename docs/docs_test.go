// Package docs_test holds the documentation to what the code does: its
// commands are run, its Go is compiled, its YAML is loaded as a worker loads
// it, its links are followed, and the names in it are those that exist.
package docs_test

import (
	"crypto/x509"
	"encoding/pem"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// page is a page of the documentation.
type page struct {
	path   string // such as operating.md or ../README.md
	lines  []string
	blocks []block
}

// block is a fenced block of a page.
type block struct {
	page  string
	under string   // the heading before it
	line  int      // of its first line
	lang  string   // the first word behind the fence
	marks []string // the others
	text  string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

func (b block) marked(mark string) bool { return slices.Contains(b.marks, mark) }

// readPages returns all pages: those of this directory, and those above it that
// users read.
func readPages(t *testing.T) []page {
	t.Helper()
	paths, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	var pages []page
	for _, path := range append(paths, filepath.Join("..", "README.md"), filepath.Join("..", "CHANGELOG.md"), filepath.Join("..", "CONTRIBUTING.md"), filepath.Join("..", "RELIABILITY.md")) {
		pages = append(pages, readPage(t, path))
	}
	if len(pages) < 10 {
		t.Fatalf("%d pages: some are missing", len(pages))
	}
	return pages
}

func readPage(t *testing.T, path string) page {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := page{path: path}
	var open *block
	under := ""
	for i, line := range strings.Split(string(data), "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case !fence && open == nil:
			if m := heading.FindStringSubmatch(line); m != nil {
				under = m[1]
			}
			p.lines = append(p.lines, line)
		case !fence:
			open.text += line + "\n"
		case open == nil:
			lang, marks, _ := strings.Cut(info, " ")
			open = &block{page: path, under: under, line: i + 2, lang: lang, marks: strings.Fields(marks)}
		default:
			p.blocks = append(p.blocks, *open)
			open = nil
		}
	}
	if open != nil {
		t.Fatalf("%s: the block is not closed", open)
	}
	return p
}

// blocks returns the blocks of a language that are not marked norun.
func blocks(pages []page, lang string) []block {
	var found []block
	for _, p := range pages {
		for _, b := range p.blocks {
			if b.lang == lang && !b.marked("norun") {
				found = append(found, b)
			}
		}
	}
	return found
}

// TestConfigurations: every configuration on a page is one that a worker takes.
func TestConfigurations(t *testing.T) {
	found := blocks(readPages(t), "yaml")
	if len(found) < 4 {
		t.Fatalf("%d blocks of YAML: some are missing", len(found))
	}
	files := certificateFiles(t)
	for _, b := range found {
		if strings.Contains(b.text, "scrape_configs:") { // of Prometheus
			if err := yaml.Unmarshal([]byte(b.text), new(any)); err != nil {
				t.Errorf("%s: %v", b, err)
			}
			continue
		}
		if _, err := config.Parse(b.String(), []byte(strings.ReplaceAll(b.text, "/etc/jobthrottle", files))); err != nil {
			t.Error(err)
		}
	}
}

// certificateFiles returns a directory with the files that configurations for
// TLS name: they are read when a configuration is loaded.
func certificateFiles(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certificate := &pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}
	for name, b := range map[string]*pem.Block{"ca.pem": certificate, "client.pem": certificate, "client.key": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`^#+ (.*)$`)
	code    = regexp.MustCompile("`[^`]*`")
)

// allPages returns the Markdown of the whole repository, which is more than users read.
func allPages(t *testing.T) []page {
	t.Helper()
	var pages []page
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() != ".." && d.Name() != ".ci" && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			pages = append(pages, readPage(t, path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 25 {
		t.Fatalf("%d pages: some are missing", len(pages))
	}
	return pages
}

// TestLinks: every link to a file leads to one, and every link to a heading to
// one that is there. With -v it lists the links that leave the repository, which
// it does not follow.
func TestLinks(t *testing.T) {
	outside := map[string][]string{} // the pages that have each
	inside := 0
	for _, p := range allPages(t) {
		for _, line := range p.lines {
			for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(line, "code"), -1) {
				target, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(target, "://") {
					if u, err := url.Parse(m[1]); err != nil || u.Scheme != "https" || u.Host == "" {
						t.Errorf("%s: %s is no address of the web (%v)", p.path, m[1], err)
					}
					if !slices.Contains(outside[m[1]], p.path) {
						outside[m[1]] = append(outside[m[1]], p.path)
					}
					continue
				}
				inside++
				file := p.path
				if target != "" {
					file = filepath.Join(filepath.Dir(p.path), target)
				}
				if _, err := os.Stat(file); err != nil {
					t.Errorf("%s: broken link %s", p.path, m[1])
				} else if anchor != "" && !slices.Contains(anchors(t, file), anchor) {
					t.Errorf("%s: link %s: %s has no such heading", p.path, m[1], file)
				}
			}
		}
	}
	for _, address := range slices.Sorted(maps.Keys(outside)) {
		t.Logf("outside: %s (%s)", address, strings.Join(outside[address], ", "))
	}
	t.Logf("%d links inside, %d addresses outside", inside, len(outside))
	if inside < 150 || len(outside) < 20 {
		t.Errorf("%d links inside and %d outside: some are missing", inside, len(outside))
	}
}

// anchors are those of the headings of a page.
func anchors(t *testing.T, path string) []string {
	t.Helper()
	var found []string
	for _, line := range readPage(t, path).lines {
		if m := heading.FindStringSubmatch(line); m != nil {
			found = append(found, anchorOf(m[1]))
		}
	}
	return found
}

// anchorOf is what GitHub makes of a heading.
func anchorOf(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

// TestIndex: docs/README.md leads to every page and file beside it.
func TestIndex(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if ext := filepath.Ext(file); file != "README.md" && slices.Contains([]string{".md", ".json", ".yaml", ".go"}, ext) {
			if !strings.Contains(string(index), "]("+file+")") && !strings.HasSuffix(file, "_test.go") {
				t.Errorf("the index does not lead to %s", file)
			}
		}
	}
}

// TestPictures: every picture that is drawn by hand is well-formed, and has
// words for those who do not see it.
func TestPictures(t *testing.T) {
	pictures, err := filepath.Glob("*.svg")
	if err != nil || len(pictures) == 0 {
		t.Fatal(pictures, err)
	}
	for _, path := range pictures {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		elements := map[string]int{}
		for d := xml.NewDecoder(f); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Errorf("%s: %v", path, err)
				break
			}
			if start, ok := token.(xml.StartElement); ok {
				elements[start.Name.Local]++
			}
		}
		f.Close()
		if elements["title"] != 1 || elements["desc"] != 1 {
			t.Errorf("%s: want a title and a desc", path)
		}
	}
}

// pagesWithCommands are the pages whose commands somebody runs: TestCommands,
// or .ci/run and .ci/nightly for those of CONTRIBUTING.md and scaling.md, which are
// tests and benchmarks themselves.
var pagesWithCommands = []string{
	"getting-started.md", "install.md", "operating.md", "http-jobs.md", "per-customer.md", "commands.md", "scaling.md", filepath.Join("..", "CONTRIBUTING.md"), filepath.Join("..", "README.md"),
}

// TestLanguages: a block says what it is, so that none escapes these tests.
func TestLanguages(t *testing.T) {
	for _, p := range readPages(t) {
		for _, b := range p.blocks {
			known := slices.Contains([]string{"sh", "text", "go", "yaml", "mermaid"}, b.lang)
			if !known && !b.marked("norun") {
				t.Errorf("%s: a block of %q: no test knows it", b, b.lang)
			}
			if b.lang == "sh" && !b.marked("norun") && !slices.Contains(pagesWithCommands, p.path) {
				t.Errorf("%s: no test runs these commands", b)
			}
		}
	}
}
