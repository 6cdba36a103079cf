package deploy_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// image is what the Dockerfile makes: a directory with the files of its last stage,
// and how a container starts from it.
type image struct {
	root        string
	workdir     string
	env         map[string]string
	user        string
	entrypoint  []string
	cmd         []string
	healthcheck []string
	ports       []string
}

// buildImage follows the Dockerfile without Docker: it copies files to where the
// stages want them below directories of their own, and runs the commands there. This
// machine stands in for the image that the build begins with.
func buildImage(t *testing.T, version string) *image {
	t.Helper()
	file, err := parser.Parse(bytes.NewReader(read(t, "Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, _ []parser.Range) { t.Errorf("%s: %s", rule, message) }})
	stages, _, err := instructions.Parse(file.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	if want := "golang:" + goVersion(t) + "-"; !strings.HasPrefix(stages[0].BaseName, want) {
		t.Errorf("the commands are built by %s, go.mod wants %s", stages[0].BaseName, want)
	}
	built := map[string]*image{}
	var last *image
	for _, stage := range stages {
		last = &image{root: t.TempDir(), workdir: "/", env: map[string]string{}}
		if err := os.Chmod(last.root, 0o755); err != nil { // others run in it
			t.Fatal(err)
		}
		built[stage.Name] = last
		for _, command := range stage.Commands {
			last.follow(t, command, built, version)
		}
	}
	if base := stages[len(stages)-1].BaseName; base != "scratch" {
		t.Fatalf("the image begins with %s: this test knows only scratch", base)
	}
	return last
}

// goVersion is the Go of go.mod, such as 1.26.
func goVersion(t *testing.T) string {
	t.Helper()
	_, version, _ := strings.Cut(string(read(t, "go.mod")), "\ngo ")
	version, _, _ = strings.Cut(version, "\n")
	return strings.Join(strings.SplitN(version, ".", 3)[:2], ".")
}

// follow does what one instruction says.
func (i *image) follow(t *testing.T, command instructions.Command, built map[string]*image, version string) {
	t.Helper()
	switch c := command.(type) {
	case *instructions.WorkdirCommand:
		i.workdir = c.Path
		if err := os.MkdirAll(filepath.Join(i.root, i.workdir), 0o755); err != nil {
			t.Fatal(err)
		}
	case *instructions.EnvCommand:
		for _, pair := range c.Env {
			i.env[pair.Key] = pair.Value
		}
	case *instructions.ArgCommand:
		for _, arg := range c.Args {
			if arg.Key != "VERSION" {
				t.Fatalf("%s: this test has no value for it", c)
			}
			i.env[arg.Key] = version
		}
	case *instructions.CopyCommand:
		i.copy(t, c, built[c.From])
	case *instructions.RunCommand:
		run := exec.CommandContext(t.Context(), "/bin/sh", "-e", "-c", strings.Join(c.CmdLine, " "))
		run.Dir = filepath.Join(i.root, i.workdir)
		run.Env = append(os.Environ(), i.environment()...)
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c, err, out)
		}
	case *instructions.UserCommand:
		i.user = c.User
	case *instructions.EntrypointCommand:
		i.entrypoint = execForm(t, c, c.ShellDependantCmdLine)
	case *instructions.CmdCommand:
		i.cmd = execForm(t, c, c.ShellDependantCmdLine)
	case *instructions.HealthCheckCommand:
		if c.Health.Test[0] != "CMD" {
			t.Fatalf("%s: the image has no shell", c)
		}
		i.healthcheck = c.Health.Test[1:]
	case *instructions.ExposeCommand:
		i.ports = append(i.ports, c.Ports...)
	case *instructions.StopSignalCommand:
		if c.Signal != "SIGTERM" {
			t.Fatalf("%s: workers drain on SIGTERM", c)
		}
	default:
		t.Fatalf("%s: this test does not know what that does", command.Name())
	}
}

func execForm(t *testing.T, c instructions.Command, line instructions.ShellDependantCmdLine) []string {
	t.Helper()
	if line.PrependShell {
		t.Fatalf("%s %s: the image has no shell", c.Name(), line.CmdLine)
	}
	return line.CmdLine
}

func (i *image) environment() []string {
	var env []string
	for key, value := range i.env {
		env = append(env, key+"="+value)
	}
	return env
}

// copy copies files of the repository, or of another stage.
func (i *image) copy(t *testing.T, c *instructions.CopyCommand, from *image) {
	t.Helper()
	for _, source := range c.SourcePaths {
		dest := c.DestPath
		if !filepath.IsAbs(dest) {
			dest = filepath.Join(i.workdir, dest)
		}
		dest = filepath.Join(i.root, dest)
		if c.From != "" {
			path := filepath.Join(from.root, source)
			if _, err := os.Stat(path); err != nil {
				path = source // a file that its base image brings
			}
			copyTo(t, path, dest, strings.HasSuffix(c.DestPath, "/"))
			continue
		}
		found := false
		for _, path := range buildContext(t) {
			if source == "." || path == source {
				copyTo(t, filepath.Join(repository, path), filepath.Join(dest, path), false)
				found = true
			}
		}
		if !found {
			t.Fatalf("%s: there is no %s, or .dockerignore hides it", c, source)
		}
	}
}

// copyTo copies a file, or what is in a directory.
func copyTo(t *testing.T, source, dest string, into bool) {
	t.Helper()
	info, err := os.Stat(source)
	if err != nil {
		t.Fatal(err)
	}
	if info.IsDir() {
		if err := os.CopyFS(dest, os.DirFS(source)); err != nil {
			t.Fatal(err)
		}
		return
	}
	if into {
		dest = filepath.Join(dest, filepath.Base(source))
	}
	data, err := os.ReadFile(source)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(dest), 0o755)
	}
	if err == nil {
		err = os.WriteFile(dest, data, info.Mode())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// buildContext returns the files that a build sees: those of the repository that
// .dockerignore does not hide.
func buildContext(t *testing.T) []string {
	t.Helper()
	hidden, err := ignorefile.ReadAll(bytes.NewReader(read(t, ".dockerignore")))
	if err != nil {
		t.Fatal(err)
	}
	matcher, err := patternmatcher.New(hidden)
	if err != nil {
		t.Fatal(err)
	}
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	list.Dir = repository
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(strings.Trim(string(out), "\x00"), "\x00"), func(path string) bool {
		if _, err := os.Stat(filepath.Join(repository, path)); err != nil {
			return true // deleted, and git does not know it yet
		}
		ignored, err := matcher.MatchesOrParentMatches(path)
		if err != nil {
			t.Fatal(err)
		}
		return ignored
	})
}

// command returns a command that runs as in a container of the image: as its user,
// and with nothing but its files, if this process may do that.
func (i *image) command(t *testing.T, env map[string]string, argv ...string) *exec.Cmd {
	t.Helper()
	all := maps.Clone(i.env)
	maps.Copy(all, env)
	container := &image{env: all}
	path := argv[0]
	if !filepath.IsAbs(path) {
		path = filepath.Join(i.env["PATH"], path)
	}
	cmd := exec.CommandContext(t.Context(), path, argv[1:]...)
	cmd.Env, cmd.Dir = container.environment(), i.workdir
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Credential: i.credential(t)}
		return cmd
	}
	cmd.Path, cmd.Dir = filepath.Join(i.root, path), filepath.Join(i.root, i.workdir)
	return cmd
}
