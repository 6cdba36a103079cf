package e2e

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/strictapi"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// TestChaos: under load, one of three workers is killed every 2 s for a minute,
// and Redis, which writes all it knows to disk, is killed twice. Every job is
// done within 3 minutes of the last kill, except those that must not be tried
// twice and were in the hands of a worker that was killed: asynq's recoverer
// archives them. The API never sees more than its limit, and nothing stays
// behind. It takes minutes: JOBTHROTTLE_NIGHTLY=1.
func TestChaos(t *testing.T) {
	if !nightly() {
		t.Skip("takes minutes: set JOBTHROTTLE_NIGHTLY=1")
	}
	const jobs, onceEvery, workers = 2600, 10, 3
	// Processes start all the time on the machine of the API, and Redis writes
	// to its disk: requests arrive later than the default guard of 10ms allows.
	const guard = 200 * time.Millisecond
	server := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
	s := siteOn(t, server.Addr, guard)
	s.enqueueLines(jobs, func(i int) string {
		retries := 25
		if i%onceEvery == 0 {
			retries = 0
		}
		return fmt.Sprintf(`{"type":"http:request","id":%q,"max_retry":%d,"payload":{"method":"GET","url":"%s/?job=%s"}}`,
			jobName(i), retries, s.url, jobName(i))
	})
	fleet := make([]*worker, workers)
	for i := range fleet {
		fleet[i] = s.startWorker()
	}
	var lastKill time.Time
	kills := 0
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < time.Minute; kills++ {
		<-tick.C
		fleet[kills%workers].kill()
		lastKill = time.Now()
		if kills == 9 || kills == 19 {
			server.Stop()
			<-time.After(time.Second)
			server.Restart()
		}
		fleet[kills%workers] = s.startWorker()
	}
	if s.queue().Pending+s.queue().Retry == 0 {
		t.Errorf("nothing left to do before the last kill: no load")
	}
	testkit.Eventually(t, 3*time.Minute-time.Since(lastKill), "all jobs done or archived", func() bool {
		q := s.queue()
		return q.Completed+q.Archived == jobs
	}, s.state)
	took := time.Since(lastKill)
	s.checkLimit()
	s.stop(fleet...)
	archived := s.archived()
	arrived := s.api.Report().Jobs
	for i := range jobs {
		name := jobName(i)
		switch lost := slices.Contains(archived, name); {
		case lost && i%onceEvery != 0:
			t.Errorf("%s has retries left and is archived", name)
		case !lost && arrived[name] == 0:
			t.Errorf("%s never arrived", name)
		}
	}
	s.checkNothingLeft(server.Addr)
	r := s.api.Report()
	t.Logf("%d kills; %d of %d jobs done %v after the last, %d of the %d without retries archived; %d requests, at most %d in %v (limit %d), %d refused",
		kills, jobs-len(archived), jobs, took.Round(time.Second), len(archived), jobs/onceEvery, r.Requests, r.Peak, apiInterval, apiLimit, r.Refused)
}

// siteOn is a site whose Redis is the caller's. Jobs hold and park as by default.
func siteOn(tb testing.TB, addr string, guard time.Duration) *site {
	tb.Helper()
	api := strictapi.New(apiLimit, apiInterval)
	server := httptest.NewServer(api)
	tb.Cleanup(server.Close)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	tb.Cleanup(func() { rdb.Close() })
	config := filepath.Join(tb.TempDir(), "config.yaml")
	text := fmt.Sprintf(`
redis: { addrs: [%q] }
limits: { api: { rate: %d/%v, guard: %v } }
pools: [ { name: default, concurrency: 20 } ]
jobs: { "http:request": { limits: [api] } }
http: { allow_hosts: [%q] }
`, addr, apiLimit, apiInterval, guard, server.Listener.Addr())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return &site{tb: tb, api: api, url: server.URL, redis: addr, config: config, inspector: asynq.NewInspectorFromRedisClient(rdb)}
}

// enqueueLines adds n jobs that line describes.
func (s *site) enqueueLines(n int, line func(i int) string) {
	s.tb.Helper()
	var lines strings.Builder
	for i := range n {
		lines.WriteString(line(i))
		lines.WriteByte('\n')
	}
	file := filepath.Join(s.tb.TempDir(), "jobs.ndjson")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		s.tb.Fatal(err)
	}
	if got := runToEnd(s.tb, "enqueue", "--config", s.config, "--file", file); got.status != 0 {
		s.tb.Fatalf("enqueue: status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
}

// archived are the ids of the jobs that asynq has given up.
func (s *site) archived() []string {
	s.tb.Helper()
	var ids []string
	for page := 1; ; page++ {
		tasks, err := s.inspector.ListArchivedTasks("default", asynq.Page(page), asynq.PageSize(100))
		if err != nil {
			s.tb.Fatal(err)
		}
		for _, task := range tasks {
			ids = append(ids, task.ID)
		}
		if len(tasks) < 100 {
			return ids
		}
	}
}

// checkNothingLeft fails the test unless all that Redis holds soon is asynq's
// record of finished jobs, the limiter itself and the last hour: no lease, no line, no reply.
func (s *site) checkNothingLeft(addr string) {
	s.tb.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	ours := []string{"api", "{api}:value", "{api}:permits", "{api}:clients"}
	asynqs := []string{"asynq:queues", "asynq:servers", "asynq:workers", "asynq:{default}:completed", "asynq:{default}:archived"}
	var left []string
	testkit.Eventually(s.tb, 2*time.Minute, "no keys left behind", func() bool {
		keys, err := rdb.Keys(context.Background(), "*").Result()
		if err != nil {
			s.tb.Fatal(err)
		}
		left = slices.DeleteFunc(keys, func(key string) bool {
			if strings.HasPrefix(key, "{jobthrottle:history}:") { // what happened in the last hour, which goes by itself
				ttl, err := rdb.PTTL(context.Background(), key).Result()
				return err == nil && ttl > 0 && ttl <= 62*time.Minute
			}
			return slices.Contains(ours, key) || slices.Contains(asynqs, key) ||
				strings.HasPrefix(key, "asynq:{default}:t:") || strings.HasPrefix(key, "asynq:{default}:processed") || strings.HasPrefix(key, "asynq:{default}:failed")
		})
		return len(left) == 0
	}, func() string { return strings.Join(left, ", ") })
}
