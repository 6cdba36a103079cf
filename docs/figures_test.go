package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeFigures: the figures of the README are those of BENCHMARKS.md, in the row
// of the same name.
func TestReadmeFigures(t *testing.T) {
	figures := func(path string) map[string][]string {
		rows := map[string][]string{}
		for _, line := range readPage(t, path).lines {
			if cells := strings.Split(strings.Trim(line, "|"), "|"); strings.HasPrefix(line, "|") && len(cells) > 2 {
				for i, cell := range cells {
					cell, _, _ = strings.Cut(strings.TrimSpace(cell), " (") // how many times the first row's
					if i == 0 {
						cell = strings.TrimSpace(cells[0])
					}
					cells[i] = cell
				}
				rows[cells[0]] = cells[1:]
			}
		}
		return rows
	}
	measured, compared := figures(filepath.Join("..", "BENCHMARKS.md")), 0
	for name, row := range figures(filepath.Join("..", "README.md")) {
		source, ok := measured[name]
		if !ok || name == "" || strings.HasPrefix(name, "---") {
			continue
		}
		compared++
		if row[0] != source[0] || row[1] != source[2] { // first to last start, busiest window
			t.Errorf("%s: the README has %v, BENCHMARKS.md %v", name, row, source)
		}
	}
	if compared != 3 {
		t.Errorf("%d rows of the README are in BENCHMARKS.md, want 3", compared)
	}
}

// TestReadmeModule: what the README tells to get is this module, and it asks for the
// Go that go.mod asks for.
func TestReadmeModule(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	module, _, _ := strings.Cut(strings.TrimPrefix(string(mod), "module "), "\n")
	_, version, _ := strings.Cut(string(mod), "\ngo ")
	version, _, _ = strings.Cut(version, "\n")
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\ngo get " + module + "\n", "Go " + strings.TrimSuffix(version, ".0") + ","} {
		if !strings.Contains(string(readme), want) {
			t.Errorf("the README does not say %q", want)
		}
	}
}
