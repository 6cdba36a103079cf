package docs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// typeWithTypos types each command of the pages with one typo in each of its words: no
// crash, and no silent success. What the command says names the typo, or the next step.
func typeWithTypos(s *shell) {
	s.t.Helper()
	s.write("first.yaml", s.addresses.Replace("redis: { addrs: [\""+redisAddr+"\"] }\nlimits: { example-api: { rate: 10/1s } }\njobs: { \"http:request\": { limits: [example-api] } }\nhttp: { allow_hosts: [\"127.0.0.1:9464\"] }\n"))
	s.write("jobs.ndjson", `{"type":"http:request","id":"order-2","payload":{"url":"http://127.0.0.1:9464/healthz"}}`+"\n")
	s.do(s.t.Context(), "throttle set stripe 100/1s --create; throttle set stripe-account 10/1s --value acme --create; enqueue --file jobs.ndjson")
	commands := commandsOf(s)
	if len(commands) < 20 {
		s.t.Fatalf("only %d commands are found: %q", len(commands), commands)
	}
	typed := 0
	for _, words := range commands {
		for i, word := range words {
			wrong := misspelt(word)
			if wrong == word || i > 0 && skipped(words[i-1]) {
				continue
			}
			typed++
			s.typeOne(slices.Concat(words[:i], []string{wrong}, words[i+1:]), wrong)
		}
	}
	s.t.Logf("%d typos in %d commands", typed, len(commands))
}

// skipped says that nobody can tell a typo there: what stands behind this flag may be anything.
func skipped(flag string) bool {
	return slices.Contains([]string{"--payload", "--after", "--weight"}, flag)
}

// commandsOf are the calls of our commands on the pages, once each, in words.
func commandsOf(s *shell) [][]string {
	var commands [][]string
	seen := map[string]bool{}
	ours := regexp.MustCompile(`^(?:bin/)?(worker|enqueue|throttle) [^|<>$&]*$`)
	pages := readPages(s.t)
	for _, p := range pages {
		for _, b := range p.blocks {
			if b.lang != "sh" {
				continue
			}
			for line := range strings.Lines(b.text) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
				line = strings.TrimSpace(strings.TrimPrefix(line, "bin/"))
				if !ours.MatchString(line) || seen[line] || strings.Contains(line, "--demo") {
					continue
				}
				seen[line] = true
				commands = append(commands, wordsOf(s.addresses.Replace(line)))
			}
		}
	}
	return commands
}

// quotedWord is a word of a command between quotes, or one without.
var quotedWord = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)

// wordsOf splits a command as a shell does.
func wordsOf(line string) []string {
	words := quotedWord.FindAllString(line, -1)
	for i, word := range words {
		if word[0] == '\'' || word[0] == '"' {
			words[i] = word[1 : len(word)-1]
		}
	}
	return words
}

// misspelt swaps two letters in the middle of a word; a word without such letters stays.
func misspelt(word string) string {
	letters := []byte(word)
	for i := len(letters)/2 - 1; i >= 0 && i+1 < len(letters); i-- {
		a, b := rune(letters[i]), rune(letters[i+1])
		if unicode.IsLetter(a) && unicode.IsLetter(b) && a != b {
			letters[i], letters[i+1] = letters[i+1], letters[i]
			return string(letters)
		}
	}
	return word
}

// nextStep is how messages say what to do.
var nextStep = regexp.MustCompile(`did you mean|--help|no such file|not found`)

// typeOne types a command, of which one word is wrong.
func (s *shell) typeOne(words []string, wrong string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	name := filepath.Join(s.dir, "bin", words[0])
	if _, err := os.Stat(name); err != nil {
		return // the shell says that there is no such command
	}
	cmd := exec.CommandContext(ctx, name, words[1:]...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "REDIS_PASSWORD=", "ADMIN_TOKEN=")
	out, err := cmd.CombinedOutput()
	said, as := string(out), strings.Join(words, " ")
	exit, failed := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		s.t.Errorf("%s: it goes on as if nothing was wrong: %s", as, said)
	case strings.Contains(said, "goroutine ") || strings.Contains(said, "panic"):
		s.t.Errorf("%s: it crashes:\n%s", as, said)
	case err != nil && !failed:
		s.t.Errorf("%s: %v", as, err)
	case failed && exit.ExitCode() != 1 && exit.ExitCode() != 2:
		s.t.Errorf("%s: exit status %d:\n%s", as, exit.ExitCode(), said)
	case !strings.Contains(said, strings.TrimLeft(wrong, "-")) && !nextStep.MatchString(said):
		s.t.Errorf("%s: neither the typo nor the next step is named (%v):\n%s", as, err, said)
	}
}

// write writes a file into the shell's directory.
func (s *shell) write(name, contents string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(contents), 0o600); err != nil {
		s.t.Fatal(fmt.Errorf("write %s: %w", name, err))
	}
}
