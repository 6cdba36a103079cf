package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
)

var unitFile = []string{"deploy", "systemd", "jobthrottle-worker.service"}

// systemdWorker returns the worker of the systemd unit.
func systemdWorker(t *testing.T) deployed {
	t.Helper()
	options, err := unit.DeserializeOptions(bytes.NewReader(read(t, unitFile...)))
	if err != nil {
		t.Fatal(err)
	}
	service, always := map[string]string{}, false
	for _, o := range options {
		if _, twice := service[o.Name]; twice && o.Section == "Service" {
			t.Errorf("%s is there twice", o.Name)
		}
		if o.Section == "Service" {
			service[o.Name] = o.Value
		}
		always = always || o.Section == "Unit" && o.Name == "StartLimitIntervalSec" && o.Value == "0"
	}
	if !always {
		t.Error("systemd gives up after 5 starts in 10s: a worker that starts while Redis is away stays away")
	}
	argv := strings.Fields(service["ExecStart"])
	if len(argv) == 0 || argv[0] != "/usr/local/bin/worker" {
		t.Fatalf("ExecStart=%s", service["ExecStart"])
	}
	grace, err := time.ParseDuration(service["TimeoutStopSec"])
	if err != nil {
		t.Fatalf("TimeoutStopSec: %v", err)
	}
	if service["RestartPreventExitStatus"] != "2" {
		t.Errorf("RestartPreventExitStatus=%q: a configuration that cannot be used ends with 2, again and again", service["RestartPreventExitStatus"])
	}
	if service["Restart"] != "always" || service["Environment"] != "GOTRACEBACK=crash" {
		t.Errorf("Restart=%q, Environment=%q: Go ends with 2 when it crashes, unless it aborts", service["Restart"], service["Environment"])
	}
	return deployed{
		args:   append(argv[1:], "--admin-addr", "127.0.0.1:9464"), // which config.yaml leaves out
		config: string(read(t, "config.yaml")), env: noSecrets, port: 9464, grace: grace,
	}
}

// TestSystemdUnit: systemd finds nothing wrong with the unit, and little that the
// worker could still do to the machine.
func TestSystemdUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is missing: TestDeployments reads the unit")
	}
	dir := t.TempDir()
	worker := filepath.Join(dir, "worker") // verify asks whether it is there
	if err := os.WriteFile(worker, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, unitFile[len(unitFile)-1])
	if err := os.WriteFile(path, bytes.ReplaceAll(read(t, unitFile...), []byte("/usr/local/bin/worker"), []byte(worker)), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", path).CombinedOutput()
	if err != nil || strings.Contains(string(out), filepath.Base(path)) {
		t.Errorf("verify: %v\n%s", err, out)
	}
	out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--threshold=20", "--no-pager", path).CombinedOutput()
	if strings.Contains(string(out), "unrecognized option") {
		t.Skip("this systemd-analyze is older than 250: the unit is verified, its exposure is not judged")
	}
	if err != nil {
		t.Errorf("security: %v: want an exposure of 2.0 or less\n%s", err, out)
	}
}
