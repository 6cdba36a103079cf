package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDeployments: the image holds the commands, and a worker that is started from
// it as Docker, Compose, Kubernetes and systemd start it becomes ready, answers
// whoever watches it, and ends in time.
func TestDeployments(t *testing.T) {
	const version = "v1.2.3-test"
	img := buildImage(t, version)
	t.Run("image", func(t *testing.T) {
		for _, name := range []string{"worker", "enqueue", "throttle"} {
			if got, want := img.output(t, name, "--version"), name+" version "+version+"\n"; got != want {
				t.Errorf("--version says %q, want %q", got, want)
			}
		}
		if size := sizeOf(t, img.root); size > 100<<20 {
			t.Errorf("the image has %d MB", size>>20)
		}
		if _, err := os.Stat(filepath.Join(img.root, "etc/ssl/certs/ca-certificates.crt")); err != nil {
			t.Errorf("it trusts no authority: %v", err)
		}
		if !slices.Equal(img.entrypoint, []string{"worker"}) {
			t.Errorf("entrypoint %q", img.entrypoint)
		}
	})
	t.Run("completion", func(t *testing.T) {
		if _, err := exec.LookPath("bash"); err != nil {
			t.Skip("bash is missing")
		}
		img.completes(t, []string{"worker", "--he"}, "--health", "--help")
		img.completes(t, []string{"enqueue", "--rep"}, "--replace")
		img.completes(t, []string{"enqueue", "--config", ""}, "files ending in yaml|yml|")
		img.completes(t, []string{"throttle", "--redis", "127.0.0.1:1", "re"}, "release", "resume", "retry")
	})
	page := string(read(t, "docs", "install.md"))
	compose, kubernetes, systemd := composeWorker(t), kubernetesWorker(t), systemdWorker(t)
	for name, d := range map[string]deployed{
		// docker stop waits for 10s, unless it is told otherwise: enough for config.yaml as it ships.
		"docker":     {args: img.cmd, config: string(read(t, "config.yaml")), env: noSecrets, port: port(t, img.ports), grace: 10 * time.Second},
		"Compose":    compose.withDefaults(img),
		"Kubernetes": kubernetes,
		"systemd":    systemd,
	} {
		t.Run(name, func(t *testing.T) { d.run(t, img) })
		if row := fmt.Sprintf("\n| %s | %d s |", name, d.grace/time.Second); !strings.Contains(page, row) {
			t.Errorf("docs/install.md does not say %q", row[1:])
		}
	}
}

// noSecrets is the environment of a worker whose Redis and dashboard have none.
var noSecrets = map[string]string{"REDIS_PASSWORD": "", "ADMIN_TOKEN": ""}

// TestDocker builds and runs the image with Docker, where there is one.
func TestDocker(t *testing.T) {
	if !docker(t) {
		t.Skip("no Docker engine is running: TestDeployments runs the commands of the Dockerfile instead")
	}
	const tag, version = "jobthrottle:test", "v1.2.3-test"
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "docker", args...)
		cmd.Dir = repository
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("docker %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("build", "--build-arg", "VERSION="+version, "--tag", tag, ".")
	defer run("image", "rm", tag)
	if got := run("run", "--rm", tag, "--version"); strings.TrimSpace(got) != "worker version "+version {
		t.Errorf("--version says %q", got)
	}
	if got := run("run", "--rm", "--read-only", "--cap-drop", "ALL", tag, "--demo", "--json"); !strings.Contains(got, `"refused":0`) {
		t.Errorf("the demo ends with\n%s", got)
	}
}

func sizeOf(t *testing.T, root string) (size int64) {
	t.Helper()
	err := filepath.Walk(root, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}
