package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// imports are the packages that fragments of Go may use without saying so.
var imports = []string{
	"bytes", "context", "encoding/json", "errors", "fmt", "log", "net/http", "time",
	"github.com/hibiken/asynq", "github.com/prometheus/client_golang/prometheus", "github.com/prometheus/client_golang/prometheus/promhttp",
	"github.com/redis/go-redis/v9", "go.uber.org/zap",
	"github.com/jobthrottle/jobthrottle/asynqlimit", "github.com/jobthrottle/jobthrottle/config", "github.com/jobthrottle/jobthrottle/producer", "github.com/jobthrottle/jobthrottle/throttle",
	"github.com/jobthrottle/jobthrottle/throttle/httplimit", "github.com/jobthrottle/jobthrottle/throttle/operate",
	"github.com/jobthrottle/jobthrottle/throttle/replicas", "github.com/jobthrottle/jobthrottle/worker",
}

// surroundings are what fragments may use beside packages: what the pages have
// introduced before.
const surroundings = `ctx context.Context, rdb *redis.Client, client *throttle.Client, limiter *throttle.Limiter,
	limits *asynqlimit.Limits, mux *asynq.ServeMux, w *worker.Worker, logger *zap.Logger, ask func(context.Context, []byte) (int64, error)`

// TestSnippets: all Go on the pages compiles, and go vet finds nothing in it.
// Whole programs stand for themselves, a fragment becomes the body of a function.
func TestSnippets(t *testing.T) {
	t.Parallel()
	var packages []string
	dir := snippetDir(t)
	for i, b := range blocks(readPages(t), "go") {
		packages = append(packages, writeSnippet(t, dir, i, b))
	}
	if len(packages) < 10 {
		t.Fatalf("%d snippets: some are missing", len(packages))
	}
	out, err := exec.Command("go", append([]string{"vet"}, packages...)...).CombinedOutput()
	if err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}

// TestPrograms: those that are marked run say what the page says.
func TestPrograms(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	dir, ran := snippetDir(t), 0
	for _, p := range readPages(t) {
		for i, b := range p.blocks {
			if b.lang != "go" || !b.marked("run") {
				continue
			}
			if i+1 == len(p.blocks) || p.blocks[i+1].lang != "text" {
				t.Fatalf("%s: what it prints does not follow", b)
			}
			b.text = strings.ReplaceAll(b.text, redisAddr, redis)
			out, err := exec.Command("go", "run", writeSnippet(t, dir, ran, b)).CombinedOutput()
			if want := p.blocks[i+1].text; err != nil || string(out) != want {
				t.Errorf("%s: %v\nit printed\n%swant\n%s", b, err, out, want)
			}
			ran++
		}
	}
	if ran == 0 {
		t.Error("no program is marked run")
	}
}

// snippetDir returns a directory within the module, so that snippets see what
// the module sees. Patterns such as ./... do not.
func snippetDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(".", "_snippets")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// writeSnippet makes a package of a block and returns its path.
func writeSnippet(t *testing.T, dir string, number int, b block) string {
	t.Helper()
	text := fmt.Sprintf("//line %s:%d\n%s", b.page, b.line, b.text)
	if !strings.HasPrefix(b.text, "package ") {
		text = fragment(b)
	}
	path := filepath.Join(dir, fmt.Sprintf("block%d", number))
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "main.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "./" + path
}

// fragment makes a file of statements.
func fragment(b block) string {
	var file strings.Builder
	file.WriteString("package snippet\n\n")
	for _, path := range imports {
		name := filepath.Base(strings.TrimSuffix(path, "/v9"))
		if name = strings.TrimPrefix(name, "go-"); regexp.MustCompile(`\b` + name + `\.`).MatchString(b.text + surroundings) {
			fmt.Fprintf(&file, "import %q\n", path)
		}
	}
	fmt.Fprintf(&file, "\nfunc _(%s) error {\n{\n//line %s:%d\n%s}\n", surroundings, b.page, b.line, b.text)
	lines := strings.Split(strings.TrimSpace(b.text), "\n")
	if !strings.HasPrefix(lines[len(lines)-1], "return ") {
		file.WriteString("return nil\n")
	}
	file.WriteString("}\n")
	return file.String()
}
