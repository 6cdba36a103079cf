package deploy_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// patience is how long anything may take that is to happen.
const patience = 30 * time.Second

// deployed is a worker as one of the files here would start it.
type deployed struct {
	args   []string          // after the image's entrypoint
	config string            // what is in the file that the arguments name
	env    map[string]string // what its ${NAME} stand for
	port   int               // of the admin address, as the file says
	grace  time.Duration     // from SIGTERM to SIGKILL
	probes []string          // paths that answer 200
	redis  []string          // arguments of its server
}

// configuration returns the configuration, as it is: it has to be one that a worker
// takes, whose jobs have the time to finish.
func (d deployed) configuration(t *testing.T) *config.Config {
	t.Helper()
	for key, value := range d.env {
		t.Setenv(key, value)
	}
	cfg, err := config.Parse("config.yaml", []byte(d.config))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range reference.FindAllStringSubmatch(d.config, -1) {
		if _, ok := d.env[name[1]]; !ok {
			t.Errorf("nothing sets ${%s} of the configuration", name[1])
		}
	}
	if shutdown := time.Duration(cfg.ShutdownTimeout); d.grace < shutdown+margin {
		t.Errorf("SIGKILL comes %v after SIGTERM, with a shutdown_timeout of %v: want at least %v more", d.grace, shutdown, margin)
	}
	return cfg
}

// margin is what a worker needs beside shutdown_timeout: to put back what waits, and
// to tell Redis what it leaves.
const margin = 2 * time.Second

var reference = regexp.MustCompile(`(?m)^[^#\n]*\$\{(\w+)\}`)

// run starts the worker, with a Redis and an admin address of its own, does what
// whoever watches it does, and ends it as a rollout does.
func (d deployed) run(t *testing.T, img *image) {
	t.Helper()
	cfg := d.configuration(t)
	admin := cfg.Admin.Addr
	for i, arg := range d.args {
		if arg == "--admin-addr" {
			admin = d.args[i+1]
		}
	}
	if _, port, _ := net.SplitHostPort(admin); port != strconv.Itoa(d.port) {
		t.Errorf("the admin address is %q, what asks it asks port %d", admin, d.port)
	}
	free := redistest.FreeAddr(t)
	here := strings.NewReplacer(
		cfg.Redis.Addrs[0], redistest.Start(t, d.redis...), admin, free, "127.0.0.1:"+strconv.Itoa(d.port), free,
		"/etc/jobthrottle/config.yaml", "config.yaml",
	)
	if err := os.WriteFile(filepath.Join(img.root, img.workdir, "config.yaml"), []byte(here.Replace(d.config)), 0o644); err != nil {
		t.Fatal(err)
	}
	argv := append([]string{}, img.entrypoint...)
	for _, arg := range d.args {
		argv = append(argv, here.Replace(arg))
	}
	var output testkit.Buffer
	worker := img.command(t, d.env, argv...)
	worker.Stdout, worker.Stderr = &output, &output
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- worker.Wait() }()
	for _, path := range append([]string{"/healthz", "/readyz"}, d.probes...) {
		testkit.Eventually(t, patience, path, func() bool { return answers("http://"+free+path) == nil },
			func() string { return fmt.Sprint(answers("http://"+free+path), "\n", output.String()) })
	}
	var health []string
	for _, arg := range img.healthcheck {
		health = append(health, here.Replace(arg))
	}
	if out, err := img.command(t, d.env, health...).CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", health, err, out)
	}
	stopped := time.Now()
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-exited:
		if err != nil {
			t.Errorf("%v\n%s", err, output.String())
		}
	case <-time.After(d.grace):
		t.Errorf("it goes on %v after SIGTERM\n%s", time.Since(stopped), output.String())
		_ = worker.Process.Kill()
		<-exited
	}
	if out, err := img.command(t, d.env, health...).CombinedOutput(); err == nil {
		t.Errorf("it has ended, and is still healthy: %s", out)
	}
}

// answers returns why a URL does not answer 200.
func answers(url string) error {
	client := http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// credential is the user of the image, as a number.
func (i *image) credential(t *testing.T) *syscall.Credential {
	t.Helper()
	user, group, _ := strings.Cut(i.user, ":")
	uid, err := strconv.ParseUint(user, 10, 32)
	if err != nil || uid == 0 {
		t.Fatalf("user %q: want the number of one who is not root", i.user)
	}
	gid, err := strconv.ParseUint(group, 10, 32)
	if err != nil {
		t.Fatalf("user %q: want a group", i.user)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// output runs a command of the image to its end.
func (i *image) output(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := i.command(t, nil, argv...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
	return string(out)
}

// docker says whether there is a Docker that can build.
func docker(t *testing.T) bool {
	t.Helper()
	return exec.CommandContext(t.Context(), "docker", "info").Run() == nil
}
