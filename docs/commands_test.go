package docs_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// What the pages call by these addresses is elsewhere in a test.
const (
	redisAddr = "127.0.0.1:6379"
	adminAddr = "127.0.0.1:9464"
)

// patience is how long a command may take, and how long what is marked soon may be in coming.
const patience = 2 * time.Minute

// buildCommands is how getting-started.md builds the commands.
const buildCommands = "go build -o bin/ ./cmd/..."

// TestCommands runs the commands of the pages, with what getting-started.md builds.
func TestCommands(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	build := exec.Command("go", strings.Fields(strings.Replace(buildCommands, "bin/", bin+"/", 1))[1:]...)
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", buildCommands, err, out)
	}
	t.Run("getting started", func(t *testing.T) { // word for word
		t.Parallel()
		s := newShell(t, bin)
		s.runAll(readPage(t, "getting-started.md"))
		if s.ran < 10 || !s.built {
			t.Fatalf("%d blocks of commands: some are missing", s.ran)
		}
	})
	t.Run("install", func(t *testing.T) {
		t.Parallel()
		s := newShell(t, bin)
		s.runAll(readPage(t, "install.md"))
		for _, file := range []string{"completions/worker", "completions/enqueue", "completions/throttle", "man/worker.1", "man/enqueue.1", "man/throttle.1"} {
			if info, err := os.Stat(filepath.Join(s.dir, file)); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", file, err)
			}
		}
		if _, err := exec.LookPath("groff"); err == nil { // which warns of what man would show wrongly
			if said := s.do(t.Context(), "groff -man -ww -Tascii man/*.1 2>&1 >/dev/null"); said != "" {
				t.Errorf("groff: %s", said)
			}
		}
	})
	t.Run("jobs that are HTTP requests", func(t *testing.T) {
		t.Parallel()
		s := newShell(t, bin)
		s.runAll(readPage(t, "http-jobs.md"))
		if s.ran < 4 {
			t.Fatalf("%d blocks of commands: some are missing", s.ran)
		}
	})
	t.Run("customers", func(t *testing.T) {
		t.Parallel()
		s := newShell(t, bin)
		s.do(t.Context(), "throttle set plan 10/1s --value acme --create")
		s.runAll(readPage(t, "per-customer.md"))
		if s.ran < 1 {
			t.Fatal("no block of commands")
		}
	})
	t.Run("reference", func(t *testing.T) { // what --help prints, of all commands
		t.Parallel()
		s, p := newShell(t, bin), readPage(t, "commands.md")
		s.runAll(p)
		_, below, _ := strings.Cut(s.do(t.Context(), "throttle --help"), "Available Commands:\n")
		below, _, _ = strings.Cut(below, "\n\n")
		for line := range strings.Lines(below) {
			name := strings.Fields(line)[0]
			if name == "help" || name == "completion" {
				continue
			}
			if want := "throttle " + name + " --help\n"; !slices.ContainsFunc(p.blocks, func(b block) bool { return b.text == want }) {
				t.Errorf("the page lacks %s", want)
			}
		}
		if s.ran < 15 {
			t.Errorf("%d blocks of commands: some are missing", s.ran)
		}
	})
	t.Run("typos", func(t *testing.T) {
		t.Parallel()
		typeWithTypos(newShell(t, bin))
	})
	t.Run("operating", func(t *testing.T) { // on limits and a job of the names that it uses
		t.Parallel()
		s := newShell(t, bin)
		s.do(t.Context(), "throttle set stripe 100/1s --create")
		s.do(t.Context(), "throttle set stripe-account 10/1s --value acme --create")
		s.do(t.Context(), `echo '{"type":"http:request","id":"order-17"}' | enqueue --file -`)
		s.runAll(readPage(t, "operating.md"))
		if s.ran < 4 {
			t.Fatalf("%d blocks of commands: some are missing", s.ran)
		}
	})
}

// shell runs the commands of a page in a directory that looks like a clone,
// with a Redis of its own.
type shell struct {
	t          *testing.T
	dir        string
	addresses  *strings.Replacer
	clone      bool     // the directory is a clone, in which commands are built as the page says
	env        []string // beside that of the test
	background *process
	ran        int  // blocks
	built      bool // the page said how
}

func newShell(t *testing.T, bin string) *shell {
	t.Helper()
	dir := t.TempDir()
	s := &shell{t: t, dir: dir, addresses: strings.NewReplacer(redisAddr, redistest.Start(t), adminAddr, redistest.FreeAddr(t))}
	if err := os.Symlink(bin, filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	shipped, err := os.ReadFile(filepath.Join("..", "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(s.addresses.Replace(string(shipped))), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// runAll runs the blocks of a page, and compares what they print with the block
// of text that follows, if one does:
//
//	sh background   goes on until the end, or until the next block that is marked stopped
//	sh stopped      somebody has pressed Ctrl-C there before
//	text like       its numbers and times may be others
//	text soon       the commands are repeated until they print it
func (s *shell) runAll(p page) {
	s.t.Helper()
	for i, b := range p.blocks {
		if b.lang != "sh" || b.marked("norun") {
			continue
		}
		var want *block
		if i+1 < len(p.blocks) && p.blocks[i+1].lang == "text" {
			want = &p.blocks[i+1]
		}
		s.ran++
		switch {
		case !s.clone && strings.HasPrefix(b.text, buildCommands+"\n"):
			s.built = true
			if b.text = b.text[len(buildCommands)+1:]; b.text != "" {
				s.run(b, want)
			}
		case b.marked("background"):
			s.start(b, want)
		case b.marked("stopped"):
			s.visit(p)
			s.background.interrupt()
			s.run(b, want)
		default:
			s.run(b, want)
		}
	}
}

// run runs a block to its end.
func (s *shell) run(b block, want *block) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for {
		out := s.do(ctx, b.text)
		if want == nil || matches(out, *want) {
			return
		}
		if !want.marked("soon") {
			s.t.Fatalf("%s: it printed\n%swant\n%s", b, out, want.text)
		}
		s.again(ctx, func() { s.t.Fatalf("%s: it still prints\n%swant\n%s", b, out, want.text) })
	}
}

// again returns a little later, and calls failed if there was enough of them.
func (s *shell) again(ctx context.Context, failed func()) {
	s.t.Helper()
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		failed()
	}
}

// do runs commands as a shell does, and returns what they print.
func (s *shell) do(ctx context.Context, commands string) string {
	s.t.Helper()
	cmd := s.command(ctx, commands)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v of\n%s\n%s", err, commands, out)
	}
	return string(out)
}

func (s *shell) command(ctx context.Context, commands string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", s.addresses.Replace(commands))
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(s.dir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"), "REDIS_PASSWORD=", "ADMIN_TOKEN=")
	cmd.Env = append(cmd.Env, s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go run starts another process, which has to end, too
	return cmd
}

// start begins a block that goes on, and returns once it has printed what is wanted, if anything is.
func (s *shell) start(b block, want *block) {
	s.t.Helper()
	p := &process{t: s.t, cmd: s.command(context.Background(), "exec "+b.text), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait()
	}()
	s.t.Cleanup(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.exited
	})
	s.background = p
	if want == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for !matches(p.output.String(), *want) {
		s.again(ctx, func() { s.t.Fatalf("%s: it printed\n%swant\n%s", b, p.output.String(), want.text) })
	}
}

var pageURL = regexp.MustCompile(`<(http://` + regexp.QuoteMeta(adminAddr) + `[^>]*)>`)

// visit opens the addresses that the page tells the reader to open.
func (s *shell) visit(p page) {
	s.t.Helper()
	visited := 0
	for _, line := range p.lines {
		for _, m := range pageURL.FindAllStringSubmatch(line, -1) {
			resp, err := http.Get(s.addresses.Replace(m[1]))
			if err != nil {
				s.t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				s.t.Errorf("%s: %s", m[1], resp.Status)
			}
			visited++
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if visited == 0 {
		s.t.Errorf("%s has no address to open", p.path)
	}
}

// process is a command that goes on.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	output testkit.Buffer
	exited chan struct{} // closed once the process is gone and waited for
}

// interrupt does what Ctrl-C does, and waits for the end.
func (p *process) interrupt() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.t.Fatalf("it does not end:\n%s", p.output.String())
	}
	if !p.cmd.ProcessState.Success() {
		p.t.Errorf("%v:\n%s", p.cmd.ProcessState, p.output.String())
	}
}

// changing is what a text that is marked like may have otherwise: numbers,
// durations and times, but neither rates nor ids.
var changing = regexp.MustCompile(`[a-z]+-\d+|\d+/\d+(ms|s|m|h)|(\d+(\.\d+)?(µs|ms|s|m|h)?)+`)

// matches says whether commands printed what a block of text shows.
func matches(printed string, want block) bool {
	if want.marked("like") {
		return loosely(printed) == loosely(want.text)
	}
	return printed == want.text
}

func loosely(text string) string {
	text = changing.ReplaceAllStringFunc(text, func(s string) string {
		if strings.Contains(s, "/") || s[0] >= 'a' {
			return s
		}
		return "#"
	})
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}
