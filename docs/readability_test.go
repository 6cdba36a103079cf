package docs_test

import (
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxGrade is the most that a page may have by TestReadability. The pages that
// everybody meets first have a bound of their own.
const maxGrade = 12

// firstPages are read by everybody, some of them at night.
var firstPages = map[string]float64{"../README.md": 9, "getting-started.md": 9, "operating.md": 9}

// TestReadability: those who speak English as a second language can read the
// pages. With -v it prints the grade of each page by the formula of Flesch and
// Kincaid, which is about the years at school that a reader needs.
//
// Only prose counts: blocks of code, tables, headings, pictures, comments and the
// targets of links are left out. See readingGrade for
// what a sentence is, and syllablesOf for what a syllable is.
func TestReadability(t *testing.T) {
	graded := 0
	for _, p := range readPages(t) {
		path := filepath.ToSlash(p.path)
		text := prose(p)
		grade, words := readingGrade(text)
		most, first := firstPages[path]
		if !first {
			most = maxGrade
		}
		t.Logf("%-22s grade %4.1f, at most %2.0f; %5d words", path, grade, most, words)
		switch {
		case first && words < 300:
			t.Errorf("%s: only %d words are found", path, words)
		case words < 100: // too few for a grade to mean anything
			continue
		case grade > most:
			t.Errorf("%s: grade %.1f, at most %.0f. Its longest sentences:\n%s", path, grade, most, strings.Join(longest(text, 3), "\n"))
		}
		graded++
	}
	if graded < 15 {
		t.Errorf("only %d pages have a grade", graded)
	}
}

// TestReadingGrade: the formula on sentences that are counted by hand.
func TestReadingGrade(t *testing.T) {
	for _, c := range []struct {
		text                        string
		words, sentences, syllables float64
	}{
		{"The cat sat on the mat.", 6, 1, 6},
		{"Every permit is written to Redis before anybody uses it.", 10, 1, 20},
		{"The first one waits. So does the next: it is not due.", 12, 2, 12}, // a colon ends no sentence
		{"Workers asked for 100 permits", 5, 1, 7},                           // a number is a word of one syllable
		{"One\n\n- Two\n- Three\n\nFour", 4, 4, 4},
		{"Set `a.b.c` in [the file](https://example.com/a.b): it waits.", 7, 1, 8}, // code is a word of two syllables
		{"One\n\n| a | table |\n\n# a heading\n\n![a picture](a.png)\n\nTwo", 2, 2, 2},
	} {
		got, words := readingGrade(prose(page{lines: strings.Split(c.text, "\n")}))
		want := 0.39*c.words/c.sentences + 11.8*c.syllables/c.words - 15.59
		if float64(words) != c.words || math.Abs(got-want) > 0.001 {
			t.Errorf("%q: grade %.2f of %d words, want %.2f of %.0f", c.text, got, words, want, c.words)
		}
	}
	for word, want := range map[string]int{"wait": 1, "waits": 1, "limited": 3, "asked": 1, "table": 2, "rule": 1, "rate": 1, "the": 1, "queues": 1, "configuration": 5, "100": 1} {
		if got := syllablesOf(word); got != want {
			t.Errorf("%q: %d syllables, want %d", word, got, want)
		}
	}
}

var (
	inlineCode = regexp.MustCompile("`[^`]*`")
	linkTo     = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	listMark   = regexp.MustCompile(`^\s*([-*]|\d+\.)\s+`)
	wordOf     = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9'’,.-]*`)
	sentence   = regexp.MustCompile(`[.!?][*)"]*(\s|$)`)
	heardE     = regexp.MustCompile(`[^aeiouy]le$`)
	vowels     = regexp.MustCompile(`[aeiouy]+`)
)

// prose is what a page says in sentences. A word in code counts as two syllables.
func prose(p page) string {
	var b strings.Builder
	for _, line := range p.lines {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "|"), strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "!["), strings.HasPrefix(trimmed, "<!--"):
			continue
		case trimmed == "", listMark.MatchString(line):
			b.WriteString(". ") // a paragraph or an item ends here
		}
		line = linkTo.ReplaceAllString(inlineCode.ReplaceAllString(line, "config"), "$1")
		b.WriteString(listMark.ReplaceAllString(line, "") + " ")
	}
	return b.String()
}

// sentences are the sentences of a text that have words: they end with a period,
// a question mark or an exclamation mark before a space, or with their paragraph
// or list item.
func sentences(text string) [][]string {
	var found [][]string
	for _, s := range sentence.Split(text, -1) {
		if words := wordOf.FindAllString(s, -1); len(words) > 0 {
			found = append(found, words)
		}
	}
	return found
}

// readingGrade is the grade by Flesch and Kincaid, 0.39 words a sentence + 11.8
// syllables a word - 15.59, and how many words it rests on.
func readingGrade(text string) (float64, int) {
	words, syllables, all := 0, 0, sentences(text)
	for _, s := range all {
		words += len(s)
		for _, w := range s {
			syllables += syllablesOf(strings.ToLower(w))
		}
	}
	if words == 0 {
		return 0, 0
	}
	return 0.39*float64(words)/float64(len(all)) + 11.8*float64(syllables)/float64(words) - 15.59, words
}

// longest are the n sentences with the most words.
func longest(text string, n int) []string {
	all := sentences(text)
	slices.SortStableFunc(all, func(a, b []string) int { return len(b) - len(a) })
	var lines []string
	for _, s := range all[:min(n, len(all))] {
		lines = append(lines, strings.Join(s, " "))
	}
	return lines
}

// syllablesOf counts the groups of vowels of a word, at least one, but for those
// that nobody hears: e at the end, unless after a consonant and l (table, but not
// rule), and ed at the end, unless after t or d (limited).
func syllablesOf(word string) int {
	n := len(vowels.FindAllString(word, -1))
	silentE := strings.HasSuffix(word, "e") && !heardE.MatchString(word)
	silentEd := strings.HasSuffix(word, "ed") && !strings.HasSuffix(word, "ted") && !strings.HasSuffix(word, "ded")
	if silentE || silentEd {
		n--
	}
	return max(n, 1)
}
