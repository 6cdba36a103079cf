//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// reportFile is the file in which a run writes a section.
const reportFile = "RELIABILITY.md"

// The section is what lies between these lines. People write the rest of the file.
const (
	sectionBegins = "<!-- written by go run ./bench/chaos -->\n"
	sectionEnds   = "<!-- end of what go run ./bench/chaos writes -->\n"
)

// write puts the section into the file, and says on stdout where, and what it says.
func write(m measured, stdout io.Writer) error {
	dir, err := outDir(m.opts)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, reportFile)
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	section := m.section()
	text, err := splice(string(old), section)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\n%s\n", section, file)
	return nil
}

// splice replaces the section of a file. If the file is empty, it makes a new one.
func splice(old, section string) (string, error) {
	section = sectionBegins + "\n" + section + "\n" + sectionEnds
	if old == "" {
		return "# Reliability\n\n" + section, nil
	}
	before, rest, begins := strings.Cut(old, sectionBegins)
	_, after, ends := strings.Cut(rest, sectionEnds)
	if !begins || !ends {
		return "", fmt.Errorf("the lines %q and %q are missing: between them belongs what was measured", strings.TrimSpace(sectionBegins), strings.TrimSpace(sectionEnds))
	}
	return before + section + after, nil
}

// outDir is the folder to write to. It keeps partial figures from replacing whole ones.
func outDir(opts options) (string, error) {
	switch {
	case opts.out != "":
		return opts.out, os.MkdirAll(opts.out, 0o755)
	case opts.partial():
		return os.MkdirTemp("", "jobthrottle-reliability-")
	}
	return ".", nil
}
