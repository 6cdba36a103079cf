// Package written has programs write parts of pages. Such a part is between two lines that name the
// program; people write the rest of the page.
package written

import (
	"fmt"
	"os"
	"strings"
)

// Part is the part of a page that the program by has written.
func Part(by, text string) string {
	begin, end := lines(by)
	return begin + "\n" + strings.TrimSpace(text) + "\n\n" + end
}

// Splice returns a page whose part by that program has the text. It is an error if the page has no such
// part.
func Splice(page, by, text string) (string, error) {
	begin, end := lines(by)
	before, rest, begins := strings.Cut(page, begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return "", fmt.Errorf("the lines %q and %q are missing: between them belongs what is written", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + Part(by, text) + after, nil
}

// Into writes the text into the part of a file.
func Into(file, by, text string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	spliced, err := Splice(string(page), by, text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(spliced), 0o644)
}

func lines(by string) (begin, end string) {
	return "<!-- written by " + by + " -->\n", "<!-- end of what " + by + " writes -->\n"
}
