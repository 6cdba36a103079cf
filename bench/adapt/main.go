// Command adapt simulates limits that find themselves: the rule of this module, and
// those of AWS's SDKs, of Loki and of RudderStack, with the same APIs, fleets and
// seeds, in fake time. It writes ADAPTIVE.md and its pictures.
//
//	go run ./bench/adapt
//
// What it writes depends only on the rule and the seeds, not on the machine or the clock.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

// rulePath is the rule, from the top of the repository.
const rulePath = "throttle/internal/script/lua/learn.lua"

func main() {
	seeds := flag.Int("seeds", 10, "how often each scenario is run")
	out := flag.String("out", ".", "the folder for ADAPTIVE.md and its pictures")
	kept := flag.String("results", "", "a folder that keeps what each part gave, so that a run that was ended goes on; its rule has to be the same")
	only := flag.String("only", "", "run only what this regular expression matches, for -results, and write no ADAPTIVE.md")
	path := flag.String("rule", rulePath, "the rule")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil || flag.NArg() > 0 || *seeds < 1 || *only != "" && *kept == "" {
		fmt.Fprintln(os.Stderr, "adapt: want no arguments, -seeds of at least 1, a regular expression for -only, and -results with it")
		os.Exit(2)
	}
	if err := bench(book{seeds: *seeds, kept: *kept, only: match, ours: contender{"jobthrottle", newOurs(*path)}}, *out, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "adapt:", err)
		os.Exit(1)
	}
}

// bench runs everything and writes the results.
func bench(b book, out string, progress io.Writer) error {
	if err := b.run(progress); err != nil {
		return err
	}
	if b.only.String() != "" {
		return nil
	}
	if err := b.drawAll(out); err != nil {
		return err
	}
	return writeFile(filepath.Join(out, "ADAPTIVE.md"), b.write)
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
