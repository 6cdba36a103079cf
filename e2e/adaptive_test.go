package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/hiddenapi"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// TestLateReplies: a fleet of 50 processes whose API answers up to 2 s late settles near what
// the API accepts: after 60 windows its limit is never further than 15 % away from it.
func TestLateReplies(t *testing.T) {
	if !nightly() {
		t.Skip("takes two minutes: set JOBTHROTTLE_NIGHTLY=1")
	}
	const quota, processes, windows, rest = 80, 50, 120, 60
	limit, err := hiddenapi.NewLimit(hiddenapi.Sliding, quota, time.Second, 0)
	if err != nil {
		t.Fatal(err)
	}
	api := hiddenapi.NewHidden(limit)
	late := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := httptest.NewRecorder()
		api.ServeHTTP(said, r)
		select {
		case <-time.After(rand.N(2 * time.Second)):
		case <-r.Context().Done():
		}
		w.WriteHeader(said.Code)
		_, _ = said.Body.WriteTo(w)
	}))
	defer late.Close()
	addr := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	config, file := filepath.Join(t.TempDir(), "config.yaml"), filepath.Join(t.TempDir(), "jobs.ndjson")
	text := fmt.Sprintf(`
redis: { addrs: [%q] }
limits: { hidden: { rate: 10/1s, adapt: { min: 1, max: 1000 } } }
pools: [ { name: default, concurrency: 40, max_waiting: 40 } ]
jobs: { "http:request": { limits: [hidden] } }
http: { allow_hosts: [%q] }
`, addr, strings.TrimPrefix(late.URL, "http://"))
	line := fmt.Sprintf(`{"type":"http:request","payload":{"url":%q}}`+"\n", late.URL)
	for path, content := range map[string]string{config: text, file: strings.Repeat(line, quota*(windows+30))} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := runToEnd(t, "enqueue", "--config", config, "--file", file); got.status != 0 {
		t.Fatalf("enqueue: status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
	for range processes {
		startWorker(t, config)
	}
	seconds := time.NewTicker(time.Second)
	defer seconds.Stop()
	fleet, least, most := operate.NewFleet(rdb), int64(quota), int64(quota)
	for window := range windows {
		<-seconds.C
		learnt, adapts, err := fleet.Learnt(context.Background(), "hidden")
		if err != nil || !adapts {
			t.Fatalf("adapts: %v, %v", adapts, err)
		}
		if window >= rest {
			least, most = min(least, learnt.Limit), max(most, learnt.Limit)
		}
	}
	report := api.Report()
	t.Logf("from window %d on the limit is %d to %d of %d; %+v", rest, least, most, quota, report)
	if least < quota*85/100 || most > quota*115/100 {
		t.Errorf("from window %d on the limit is %d to %d, want within 15 %% of %d", rest, least, most, quota)
	}
	info, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo("default")
	if err != nil || info.Archived > 0 || info.Failed > 0 {
		t.Errorf("%+v, %v: jobs have failed", info, err)
	}
}
