package docs_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var mapRow = regexp.MustCompile("^\\| `([a-z0-9/]+(?:/\\.\\.\\.)?)` \\| ")

// TestMap: CONTRIBUTING.md has a row for each package, by its path or by one that
// ends in /..., and none for packages that are not there.
func TestMap(t *testing.T) {
	rows := map[string]int{} // how many packages each row is for
	for _, line := range readPage(t, filepath.Join("..", "CONTRIBUTING.md")).lines {
		if m := mapRow.FindStringSubmatch(line); m != nil {
			if _, twice := rows[m[1]]; twice {
				t.Errorf("%s is there twice", m[1])
			}
			rows[m[1]] = 0
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "./...")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	modules, err := filepath.Glob("../*/go.mod") // each is one row; go list would want what it requires
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range modules {
		packages = append(packages, filepath.Base(filepath.Dir(module)))
	}
	for _, path := range packages {
		path = strings.TrimPrefix(path, "github.com/jobthrottle/jobthrottle/")
		if row := rowOf(rows, path); row != "" {
			rows[row]++
		} else {
			t.Errorf("the map in CONTRIBUTING.md does not have %s", path)
		}
	}
	for row, packages := range rows {
		if packages == 0 {
			t.Errorf("the map in CONTRIBUTING.md has %s, which is no package", row)
		}
	}
}

// rowOf returns the row of a package: its own, else that of everything below the
// nearest directory that has one.
func rowOf(rows map[string]int, path string) string {
	if _, ok := rows[path]; ok {
		return path
	}
	for dir := path; dir != "."; dir = filepath.Dir(dir) {
		if _, ok := rows[dir+"/..."]; ok {
			return dir + "/..."
		}
	}
	return ""
}
