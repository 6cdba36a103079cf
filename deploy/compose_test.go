package deploy_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// composeWorker returns the worker of compose.yaml. It fails the test if Compose
// would not take the file.
func composeWorker(t *testing.T) deployed {
	t.Helper()
	dir, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  dir,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "compose.yaml"), Content: read(t, "compose.yaml")}},
		Environment: types.Mapping{},
	})
	if err != nil {
		t.Fatal(err)
	}
	worker, redis := project.Services["worker"], project.Services["redis"]
	if worker.Build == nil || worker.Build.Context != dir {
		t.Errorf("the worker is not built here: %+v", worker.Build)
	}
	if len(worker.Volumes) != 1 || worker.Volumes[0].Target != "/etc/jobthrottle/config.yaml" || !worker.Volumes[0].ReadOnly {
		t.Fatalf("volumes %+v: want the configuration, to read", worker.Volumes)
	}
	source, err := filepath.Rel(dir, worker.Volumes[0].Source)
	if err != nil {
		t.Fatal(err)
	}
	if worker.StopGracePeriod == nil {
		t.Fatal("no stop_grace_period: Compose kills after 10s")
	}
	if len(worker.Ports) != 1 || worker.Ports[0].HostIP != "127.0.0.1" {
		t.Fatalf("ports %+v: want one, for this machine alone", worker.Ports)
	}
	env := map[string]string{}
	for name, value := range worker.Environment {
		if value != nil {
			env[name] = *value
		}
	}
	d := deployed{
		args: worker.Command, config: string(read(t, source)), env: env,
		port: int(worker.Ports[0].Target), grace: time.Duration(*worker.StopGracePeriod), redis: redis.Command[1:],
	}
	if addr := d.configuration(t).Redis.Addrs[0]; addr != redis.Name+":6379" {
		t.Errorf("the worker's Redis is %s, the service is named %s", addr, redis.Name)
	}
	return d
}

// withDefaults fills in what the image says and the file leaves out.
func (d deployed) withDefaults(img *image) deployed {
	if d.args == nil {
		d.args = img.cmd
	}
	return d
}

// port returns the only port that an image exposes.
func port(t *testing.T, exposed []string) int {
	t.Helper()
	if len(exposed) != 1 {
		t.Fatalf("exposed ports %q, want one", exposed)
	}
	number, err := strconv.Atoi(strings.TrimSuffix(exposed[0], "/tcp"))
	if err != nil {
		t.Fatal(err)
	}
	return number
}
