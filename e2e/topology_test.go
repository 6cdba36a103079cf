package e2e

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/strictapi"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// topology is a Redis of several servers, and what can happen to it.
type topology struct {
	section string // redis of the configuration
	rdb     redis.UniversalClient
	changes []func() // one after the other, under load
}

func onCluster(t *testing.T) topology {
	c := redistest.NewCluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { rdb.Close() })
	addrs := c.Addrs()
	top := topology{
		section: fmt.Sprintf("{ addrs: [%q, %q] }", addrs[0], addrs[4]),
		rdb:     rdb,
		changes: []func(){
			func() { c.Reshard("{api}", 500*time.Millisecond) },
			func() { c.Failover("{api}") },
			func() { c.Failover("asynq:{default}") },
		},
	}
	if nightly() {
		top.changes = append(top.changes, func() {
			master := c.Master("{api}")
			master.Stop()
			c.AwaitFailover("{api}", master)
			master.Restart()
		})
	}
	return top
}

func onSentinels(t *testing.T) topology {
	s := redistest.StartSentinels(t, 2)
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: redistest.SentinelMaster, SentinelAddrs: s.Addrs()})
	t.Cleanup(func() { rdb.Close() })
	addrs := s.Addrs()
	return topology{
		section: fmt.Sprintf("{ addrs: [%q, %q, %q], sentinel_master: %s, wait_replicas: 1 }", addrs[0], addrs[1], addrs[2], redistest.SentinelMaster),
		rdb:     rdb,
		changes: []func(){func() {
			s.Master.Stop()
			s.AwaitFailover()
		}},
	}
}

// TestTopologies: the commands run on a Redis Cluster and under Sentinel as on
// one server, also while slots move and masters change. The API never sees
// more than its limit, and every job arrives.
func TestTopologies(t *testing.T) {
	for name, start := range map[string]func(*testing.T) topology{"cluster": onCluster, "sentinel": onSentinels} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait for changes of masters
			top := start(t)
			jobs := 60 * (len(top.changes) + 1)
			s := siteOver(t, top)
			s.enqueueLines(jobs, s.line)
			first, second := s.startWorker(), s.startWorker()
			for i, change := range top.changes {
				s.awaitArrivals(60*i+30, time.Minute)
				change()
			}
			// A dying master may have done what it was last asked, without a reply: asynq's own
			// recovery brings such jobs back, within 2.5 minutes.
			const recovery = 3 * time.Minute
			s.awaitArrivals(jobs, recovery)
			testkit.Eventually(t, recovery, "all jobs done", func() bool {
				q, err := s.inspector.GetQueueInfo("default")
				return err == nil && q.Completed+q.Archived >= jobs
			})
			s.stop(first, second)
			s.checkLimit()
			r := s.api.Report()
			for i := range jobs {
				if r.Jobs[jobName(i)] == 0 {
					t.Errorf("%s never arrived", jobName(i))
				}
			}
			if q := s.queue(); q.Archived > 0 {
				t.Errorf("%d jobs archived", q.Archived)
			}
			t.Logf("%d requests for %d jobs, at most %d in %v (limit %d), %d refused", r.Requests, jobs, r.Peak, apiInterval, apiLimit, r.Refused)
		})
	}
}

// line describes a job.
func (s *site) line(i int) string {
	return fmt.Sprintf(`{"type":"http:request","id":%q,"payload":{"method":"GET","url":"%s/?job=%s"}}`, jobName(i), s.url, jobName(i))
}

// siteOver is a site on such a Redis, with two limits for each job. Jobs soon
// park, and Redis has seconds to change.
func siteOver(tb testing.TB, top topology) *site {
	tb.Helper()
	api := strictapi.New(apiLimit, apiInterval)
	server := httptest.NewServer(api)
	tb.Cleanup(server.Close)
	config := filepath.Join(tb.TempDir(), "config.yaml")
	text := fmt.Sprintf(`
redis: %s
limits:
  "{api}:fleet":  { rate: %d/%v, guard: 200ms }
  "{api}:worker": { rate: %d/%v, guard: 200ms, type: per_client }
pools: [ { name: default, concurrency: 20 } ]
jobs: { "http:request": { limits: ["{api}:fleet", "{api}:worker"], hold: 500ms } }
http: { allow_hosts: [%q] }
`, top.section, apiLimit, apiInterval, apiLimit*3/4, apiInterval, server.Listener.Addr())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return &site{tb: tb, api: api, url: server.URL, config: config, inspector: asynq.NewInspectorFromRedisClient(top.rdb)}
}

// TestClusterWantsHashTags: limits of one job that lie in several slots are a
// mistake in the configuration, found before anything connects.
func TestClusterWantsHashTags(t *testing.T) {
	config := write(t, "config.yaml", `redis: { addrs: ["127.0.0.1:1", "127.0.0.1:2"] }
limits: { a: { rate: 1/1s }, b: { rate: 1/1s } }
jobs: { "http:request": { limits: [a, b] } }
`)
	checkError(t, runToEnd(t, "worker", "--config", config), 2, config+":3:", "limits[1]", "{api}:a")
}
