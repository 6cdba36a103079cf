//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jobthrottle/jobthrottle/internal/written"
)

// reportFile is the file in which a run writes a section.
const reportFile = "RELIABILITY.md"

// itself is the program that the section names.
const itself = "go run ./bench/chaos"

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
	if len(old) == 0 {
		err = os.WriteFile(file, []byte("# Reliability\n\n"+written.Part(itself, section)), 0o644)
	} else {
		err = written.Into(file, itself, section)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\n%s\n", section, file)
	return nil
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
