package docs_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// maxCommands is how many commands each way into the README may take, from git clone
// to a job that a limit held.
const maxCommands = 10

// cloneFlags are for the go command in a clone: with -trimpath what is compiled there
// is in the cache when the next clone is, in another directory.
const cloneFlags = "-trimpath -buildvcs=false"

// TestWaysIn follows the README from git clone to a job within a limit, each of its
// ways with a Redis of its own. The clone is of what is here now.
func TestWaysIn(t *testing.T) {
	t.Parallel()
	outer := t
	readme := readPage(t, filepath.Join("..", "README.md"))
	ways := map[string][]block{}
	var clone []block
	for _, b := range readme.blocks {
		switch {
		case b.under == "Three ways in":
			clone = append(clone, b)
		case regexp.MustCompile(`^[1-9]\. `).MatchString(b.under):
			ways[b.under] = append(ways[b.under], b)
		}
	}
	if len(ways) != 3 || len(clone) != 2 {
		t.Fatalf("the README has %d ways in, and %d blocks before them, want 3, and how to clone and to start a Redis", len(ways), len(clone))
	}
	dir := ""
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			n := commandsIn(clone[0].text)
			needsRedis := !strings.HasPrefix(name, "1. ")
			if needsRedis {
				n += commandsIn(clone[1].text)
			}
			for _, b := range way {
				if b.lang == "sh" && !b.marked("norun") {
					n += commandsIn(b.text)
				}
			}
			t.Logf("%d commands", n)
			if n < 3 || n > maxCommands {
				t.Errorf("%d commands, want 3 to %d", n, maxCommands)
			}
			if testing.Short() {
				return
			}
			redistest.Require(t)
			if dir == "" {
				dir = makeClone(outer, clone[0].text)
			}
			s := newShell(t, t.TempDir())
			s.clone, s.dir, s.env = true, dir, []string{"GOFLAGS=" + cloneFlags}
			if needsRedis {
				s.startRedis(clone[1])
			}
			for _, file := range []string{"config.yaml", "examples/server/main.go"} { // they name a Redis, which is elsewhere
				text, err := os.ReadFile(filepath.Join("..", file))
				if err != nil {
					t.Fatal(err)
				}
				s.write(file, s.addresses.Replace(string(text)))
			}
			s.runAll(page{path: readme.path, blocks: way})
			if s.ran == 0 {
				t.Error("nothing ran")
			}
		})
	}
}

// startRedis starts a Redis as a page says, but on another port, and makes what follows use it.
func (s *shell) startRedis(b block) {
	s.t.Helper()
	addr := redistest.FreeAddr(s.t)
	_, port, _ := net.SplitHostPort(addr)
	_, there, _ := net.SplitHostPort(redisAddr)
	b.text = strings.Replace(b.text, there, port, 1)
	s.start(b, nil)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for conn, err := net.Dial("tcp", addr); ; conn, err = net.Dial("tcp", addr) {
		if err == nil {
			conn.Close()
			break
		}
		s.again(ctx, func() { s.t.Fatalf("%s: %v\n%s", b, err, s.background.output.String()) })
	}
	s.addresses = strings.NewReplacer(redisAddr, addr, adminAddr, redistest.FreeAddr(s.t))
}

// makeClone runs the commands that make a clone, and returns its directory. What
// it builds there, on a machine without a cache, takes long.
func makeClone(t *testing.T, commands string) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	s := newShell(t, t.TempDir())
	repo, git := t.TempDir(), filepath.Join(t.TempDir(), "gitconfig") // in place of GitHub's repository: what is here now
	if err := os.WriteFile(git, fmt.Appendf(nil, "[url %q]\n\tinsteadOf = https://github.com/jobthrottle/jobthrottle\n[safe]\n\tdirectory = *\n[user]\n\tname = test\n\temail = test@localhost\n", repo), 0o600); err != nil {
		t.Fatal(err)
	}
	s.env = []string{"GIT_CONFIG_GLOBAL=" + git, "GOFLAGS=" + cloneFlags}
	s.do(t.Context(), fmt.Sprintf("cp -R '%s/.' '%s' && cd '%s' && rm -rf .git && git init -q && git add -A && git commit -q -m test\n", root, repo, repo))
	s.do(t.Context(), commands+"go build ./cmd/... ./examples/...\n")
	return filepath.Join(s.dir, "jobthrottle")
}

// hereDocument is what a file gets from a command: no commands.
var hereDocument = regexp.MustCompile(`(?s)<<'END'\n.*?\nEND\n`)

// commandsIn counts the commands of a block.
func commandsIn(text string) int {
	n := 0
	for line := range strings.Lines(hereDocument.ReplaceAllString(text, "\n")) {
		for command := range strings.SplitSeq(line, "&&") {
			if command = strings.TrimSpace(command); command != "" && !strings.HasPrefix(command, "#") {
				n++
			}
		}
	}
	return n
}

// TestGoGet: after the go get of the README a program in a module of its own builds.
// The module is the one here.
func TestGoGet(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, b := range readPage(t, filepath.Join("..", "README.md")).blocks {
		if b.lang != "sh" || !strings.HasPrefix(b.text, "go get ") {
			continue
		}
		ran++
		s := newShell(t, t.TempDir())
		s.do(t.Context(), "cd '"+root+"' && go mod graph") // has all that follows in the module cache
		s.env = []string{"GOPROXY=off", "GOSUMDB=off", "GOFLAGS=", "GOWORK=off"}
		s.dir = t.TempDir()
		program, err := os.ReadFile(filepath.Join(root, "examples", "server", "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		s.write("main.go", string(program))
		s.do(t.Context(), "go mod init shop && go mod edit -replace github.com/jobthrottle/jobthrottle="+root)
		s.do(t.Context(), b.text)
		s.do(t.Context(), "go vet .")
	}
	if ran != 1 {
		t.Errorf("the README says %d times how to get the module, want once", ran)
	}
}

// TestExampleServer: what the README shows of examples/server is what is there.
func TestExampleServer(t *testing.T) {
	limits, err := os.ReadFile(filepath.Join("..", "examples", "server", "limits.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join("..", "examples", "server", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, b := range readPage(t, filepath.Join("..", "README.md")).blocks {
		if !strings.HasPrefix(b.under, "2. ") {
			continue
		}
		switch b.lang {
		case "yaml":
			shown++
			if b.text != string(limits) {
				t.Errorf("%s is not examples/server/limits.yaml", b)
			}
		case "go":
			shown++
			for line := range strings.Lines(b.text) {
				if line = strings.TrimSpace(line); !strings.Contains(string(program), "\t"+line+"\n") {
					t.Errorf("%s: %s: not in examples/server/main.go", b, line)
				}
			}
		}
	}
	if shown != 2 {
		t.Errorf("the README shows %d parts of it, want 2", shown)
	}
}
