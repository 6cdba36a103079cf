package e2e

import (
	"cmp"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// TestDeploy: three workers are replaced one by one, by those of another version,
// while jobs wait for a limit, in the lines of the version that began and in those
// of the other. Each job runs once, within the limit, and nothing of a line is
// left. .ci/two-versions names the worker of the version before this one; without
// that it is this one's.
func TestDeploy(t *testing.T) {
	before, now := cmp.Or(os.Getenv("JOBTHROTTLE_WORKER_BEFORE"), binary("worker")), binary("worker")
	t.Run("forward", func(t *testing.T) { deploy(t, before, now, false) })
	t.Run("back", func(t *testing.T) { deploy(t, now, before, true) })
}

// deploy replaces workers. One that goes back to an older version has the jobs
// that wait returned to their queue, once no worker of the newer one is left.
func deploy(t *testing.T, from, to string, release bool) {
	const jobs, workers, each = 400, 3, 90
	// Processes start all the time on the machine of the API, and requests arrive
	// later than the default guard of 10ms allows.
	s := newSite(t, plan{guard: 400 * time.Millisecond, hold: "2s", waiting: 10})
	rdb := redis.NewClient(&redis.Options{Addr: s.redis})
	defer rdb.Close()
	s.enqueue(jobs)
	var fleet []*worker
	for range workers {
		fleet = append(fleet, startProgram(t, from, s.config))
	}
	testkit.Eventually(t, 20*time.Second, "the jobs wait", func() bool { return s.queue().Retry > jobs/2 }, s.state)
	for i := range fleet {
		s.awaitArrivals((i+1)*each, time.Minute)
		w := startProgram(t, to, s.config)
		s.stop(fleet[i])
		fleet[i] = w
	}
	waiting := s.queue().Retry
	if waiting == 0 {
		t.Error("no job waits when the last worker of the first version is gone")
	}
	if release {
		if got := runToEnd(t, "throttle", "--config", s.config, "release", "--all"); got.status != 0 {
			t.Fatalf("throttle release: status %d\n%s%s", got.status, got.stdout, got.stderr)
		}
	}
	alone := time.Now()
	s.awaitDone(jobs, time.Minute)
	t.Logf("%d jobs waited when the last worker was replaced; all were done %v later, ideal %v",
		waiting, time.Since(alone).Round(time.Millisecond), s.ideal(waiting))
	s.checkOnceEach(jobs)
	s.checkLimit()
	if q := s.queue(); q.Archived != 0 || q.Failed != 0 {
		t.Errorf("%d jobs archived, %d failures", q.Archived, q.Failed)
	}
	var left []string
	testkit.Eventually(t, 20*time.Second, "no line left", func() bool {
		left = append(rdb.Keys(t.Context(), "*parked*").Val(), rdb.Keys(t.Context(), "*:jt:*").Val()...)
		return len(left) == 0
	}, func() string { return strings.Join(left, ", ") })
	s.stop(fleet...)
}
