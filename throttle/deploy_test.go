//go:build linux

package throttle_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// testProgram is the test program that an environment variable names, of another
// version of this package, or else this one.
func testProgram(env string) string {
	if program := os.Getenv(env); program != "" {
		return program
	}
	return os.Args[0]
}

// TestDeploy: eight processes are replaced one by one, while 64 goroutines of each
// wait all the time. The limit holds, and is used. .ci/two-versions has it replace
// processes of a version before, and go back to that.
func TestDeploy(t *testing.T) {
	before, after := testProgram("JOBTHROTTLE_BEFORE"), testProgram("JOBTHROTTLE_AFTER")
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
			if used := o.used(r, 10*time.Millisecond); used < 0.95 {
				t.Errorf("%.1f %% of the limit was used, want 95 %%", 100*used)
			}
		})
	}
}
