//go:build linux

package throttle_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// testProgram is the test program that an environment variable names, of another version of this
// package, or else one of this version. It is built as users build theirs: a program with the
// race detector, in which eight begin at the same time, gets its first permits after the guard,
// and a burst is given back.
func testProgram(t *testing.T, env string) string {
	t.Helper()
	if program := os.Getenv(env); program != "" {
		return program
	}
	program := filepath.Join(t.TempDir(), "throttle.test")
	if out, err := exec.Command("go", "test", "-c", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build a test program: %v\n%s", err, out)
	}
	return program
}

// TestDeploy: eight processes are replaced one by one, while 64 goroutines of each wait all the
// time. The limit holds, and is used. .ci/two-versions makes it replace processes of an earlier
// version, and go back to that.
func TestDeploy(t *testing.T) {
	before, after := testProgram(t, "JOBTHROTTLE_BEFORE"), testProgram(t, "JOBTHROTTLE_AFTER")
	for _, r := range contended {
		t.Run(strings.ReplaceAll(r.String(), "/", "per"), func(t *testing.T) {
			const each = 700 * time.Millisecond
			f := fleetOfProcesses{fleet: fleet{rate: r, clients: 16, goroutines: 64, length: 10 * each}}
			for i := range time.Duration(8) {
				end := (i + 1) * each
				f.shifts = append(f.shifts, shift{before, 0, end}, shift{after, end, f.length - end})
			}
			o, _ := f.run(t, redistest.Start(t))
			logOutcome(t, f.fleet, o)
			checkBusiest(t, o, r)
			if used := o.used(r, r.Guard); used < 0.95 {
				t.Errorf("%.1f %% of the limit was used, want 95 %%", 100*used)
			}
		})
	}
}
