package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unitsOf are the figures of benchmarks by the names that gains.md has for them.
var unitsOf = map[string]string{
	"calls": "calls/permit", "Redis CPU": "redis-us/permit", "permits/s": "permits/s", "the slowest 1 %": "permit-p99-us", "the median wait": "permit-p50-us",
}

var gained = regexp.MustCompile(`^\[(.+)\]\(\.\./\.ci/gains/results/(.+)\.md\)$`)

// TestGains: gains.md has the figures that .ci/gains/run has measured, for each mechanism that it takes out, and each gains
// 5 % or more.
func TestGains(t *testing.T) {
	patches, err := filepath.Glob(filepath.Join("..", ".ci", "gains", "*.patch"))
	if err != nil || len(patches) < 10 {
		t.Fatalf("%d patches, %v", len(patches), err)
	}
	var rows [][]string
	page := readPage(t, "gains.md")
	for i, line := range page.lines {
		if strings.HasPrefix(line, "| mechanism ") {
			rows = tableBelow(page, i-1)
			break
		}
	}
	told := map[string]bool{}
	for _, row := range rows[1:] {
		m := gained.FindStringSubmatch(row[3])
		if m == nil {
			t.Errorf("%s: no link to its results: %s", row[0], row[3])
			continue
		}
		told[m[2]] = true
		results := readPage(t, filepath.Join("..", ".ci", "gains", "results", m[2]+".md"))
		table := tableBelow(results, 0)
		benchmark, gains := strings.Trim(row[2], "`"), false
		for _, figure := range strings.Split(m[1], ", ") {
			name, ratio, _ := strings.Cut(figure, " x ")
			k := slices.IndexFunc(table, func(s []string) bool { return s[0] == benchmark && s[1] == unitsOf[name] })
			if k < 0 || !sameFigure(ratio, table[k][2]) {
				t.Errorf("%s: %s: %s is not what its results say of %s", row[0], figure, name, benchmark)
				continue
			}
			worse := parseFigure(table[k][2])
			if name == "permits/s" {
				worse = 1 / worse
			}
			gains = gains || worse >= 1.05
		}
		if !gains {
			t.Errorf("%s gains less than 5 %%", row[0])
		}
	}
	for _, patch := range patches {
		name := strings.TrimSuffix(filepath.Base(patch), ".patch")
		if !told[name] {
			t.Errorf("gains.md does not tell what %s gains", name)
		}
		if _, err := os.Stat(filepath.Join("..", ".ci", "gains", "results", name+".md")); err != nil {
			t.Error(err)
		}
	}
	if len(told) != len(patches) {
		t.Errorf("%d rows of %d patches", len(told), len(patches))
	}
}
