package docs_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jobthrottle/jobthrottle/config"
)

var (
	codeSpan    = regexp.MustCompile("`([^`\n]+)`")
	ourCommand  = regexp.MustCompile(`^(?:bin/|go run \./cmd/)?(worker|enqueue|throttle)((?: [^|<>;&]*)?)$`)
	flagOfHelp  = regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z][a-z-]*)`)
	flagWritten = regexp.MustCompile(`^(--[a-z][a-z-]*)(?:[ =].*)?$`)
)

// helps are the flags of each command and verb, as commands.md has them; the commands test holds that page to what
// --help prints.
func helps(t *testing.T) map[string][]string {
	t.Helper()
	flags := map[string][]string{}
	p := readPage(t, "commands.md")
	for i, b := range p.blocks[:len(p.blocks)-1] {
		if name, ok := strings.CutSuffix(b.text, " --help\n"); ok && b.lang == "sh" {
			for _, m := range flagOfHelp.FindAllStringSubmatch(p.blocks[i+1].text, -1) {
				flags[name] = append(flags[name], m[1])
			}
		}
	}
	if len(flags) < 15 {
		t.Fatalf("commands.md has the help of %d commands: some are missing", len(flags))
	}
	flags["throttle"] = append(flags["throttle"], "--version")
	return flags
}

// TestInlineCommands: the commands in the sentences of all pages have verbs and flags that exist, and a flag that is
// written alone is one of some command of ours.
func TestInlineCommands(t *testing.T) {
	flags, commands, alone := helps(t), 0, 0
	var all []string
	for _, f := range flags {
		all = append(all, f...)
	}
	for _, p := range readPages(t) {
		if p.path == "commands.md" {
			continue
		}
		text := strings.Join(p.lines, "\n")
		for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
			code := m[1]
			if f := flagWritten.FindStringSubmatch(code); f != nil {
				if alone++; !slices.Contains(all, f[1]) {
					t.Errorf("%s: no command has the flag %s", p.path, code)
				}
				continue
			}
			c := ourCommand.FindStringSubmatch(code)
			if c == nil {
				continue
			}
			commands++
			name, words := c[1], wordsOf(c[2])
			if name == "throttle" && len(words) > 0 && !strings.HasPrefix(words[0], "-") {
				name, words = name+" "+words[0], words[1:]
				if flags[name] == nil && name != "throttle completion" {
					t.Errorf("%s: `%s`: throttle has no such command", p.path, code)
					continue
				}
			}
			for _, word := range words {
				f := flagWritten.FindStringSubmatch(word)
				if f != nil && f[1] != "--help" && f[1] != "--version" && !slices.Contains(flags[name], f[1]) {
					t.Errorf("%s: `%s`: %s has no flag %s", p.path, code, name, f[1])
				}
			}
		}
	}
	if commands < 60 || alone < 20 {
		t.Errorf("only %d commands and %d flags are found", commands, alone)
	}
}

var (
	pathWritten = regexp.MustCompile(`^(?:redis|limits|pools|jobs|http|admin|log)(?:\.(?:[a-z][\w-]*|NAME|TYPE)|\[\w*\])+$`)
	keyWritten  = regexp.MustCompile(`^([a-z][a-z_]*): .*$`)
)

// TestInlineKeys: the keys of the configuration in the sentences of all pages are keys, or fields of a job line.
func TestInlineKeys(t *testing.T) {
	paths, names, found := []string{}, jobFields(t), 0
	eachKey("", reflect.TypeFor[config.Config](), func(key, kind string) {
		names = append(names, strings.Split(strings.ReplaceAll(key, "[]", ""), ".")...)
		if paths = append(paths, key); strings.Contains(kind, "map") {
			paths = append(paths, key+".NAME")
		}
	})
	known := func(path string) bool {
		return slices.ContainsFunc(paths, func(key string) bool {
			pattern := strings.NewReplacer(`.`, `\.`, "NAME", `[\w-]+`, "TYPE", `[\w-]+`, "[]", `\[\w*\]`).Replace(key)
			return regexp.MustCompile("^"+pattern+"$").MatchString(path) || strings.HasPrefix(key, path+".")
		})
	}
	for _, p := range readPages(t) {
		if strings.HasSuffix(p.path, "CONTRIBUTING.md") { // it shows how a commit begins
			continue
		}
		for _, m := range codeSpan.FindAllStringSubmatch(strings.Join(p.lines, "\n"), -1) {
			switch key := keyWritten.FindStringSubmatch(m[1]); {
			case pathWritten.MatchString(m[1]):
				if found++; !known(m[1]) {
					t.Errorf("%s: `%s` is no key of the configuration", p.path, m[1])
				}
			case key != nil:
				if found++; !slices.Contains(names, key[1]) {
					t.Errorf("%s: `%s`: no section has the key %s", p.path, m[1], key[1])
				}
			}
		}
	}
	if found < 80 {
		t.Errorf("only %d keys are found", found)
	}
}
