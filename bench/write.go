package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/jobthrottle/jobthrottle/bench/internal/report"
)

// The files that a run writes.
const (
	reportFile = "BENCHMARKS.md"
	plotFile   = "BENCHMARKS.svg"
)

// write writes the report and the plot, if there is one. It prints where, and which targets
// were reached.
func write(r report.Report, p *report.Plot, opts options, stdout io.Writer) error {
	dir, err := outDir(opts)
	if err != nil {
		return err
	}
	files := []string{filepath.Join(dir, reportFile)}
	if p != nil {
		r.Plot = plotFile
		files = append(files, filepath.Join(dir, plotFile))
		if err := writeFile(files[1], p.WriteSVG); err != nil {
			return err
		}
	}
	if err := writeFile(files[0], r.WriteMarkdown); err != nil {
		return err
	}
	if len(r.Targets) > 0 {
		if err := report.WriteTargets(stdout, r.Targets); err != nil {
			return err
		}
	}
	for _, f := range files {
		fmt.Fprintln(stdout, f)
	}
	return nil
}

// outDir is the folder to write to. It keeps partial reports from replacing whole ones.
func outDir(opts options) (string, error) {
	switch {
	case opts.out != "":
		return opts.out, os.MkdirAll(opts.out, 0o755)
	case opts.partial():
		return os.MkdirTemp("", "jobthrottle-bench-")
	}
	return ".", nil
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
