package worker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// TestLogTellsWhatHappened: at level info the log has, once each, what somebody asks about
// after a night: an API that paused the fleet, with its limit, for how long and by which
// job; an operator's changes; Redis away and back; the drain and the end, with counts.
func TestLogTellsWhatHappened(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/refused") {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(api.Close)
	server := redistest.New(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { rdb.Close() })
	cfg, err := config.Parse("config.yaml", fmt.Appendf(nil, `
redis: { addrs: [%q] }
limits: { refusing: { rate: 100/1s }, api: { rate: 10/1s } }
pools: [ { name: one, concurrency: 4 }, { name: two, concurrency: 4, queues: { other: 1 } } ]
jobs: { "http:request": { limits: [refusing] }, "x:": { limits: [api] } }
http: { allow_hosts: [%q] }
`, server.Addr, api.Listener.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	core, logged := observer.New(zap.InfoLevel)
	w, err := New(cfg, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	stop := (&fleet{t: t}).run(w)
	told := func(message string, fields ...string) func() bool {
		return func() bool {
			entries := logged.FilterMessage(message).All()
			if len(entries) > 1 {
				t.Errorf("%q is there %d times", message, len(entries))
			}
			if len(entries) == 0 {
				return false
			}
			text := fmt.Sprint(entries[0].ContextMap())
			for _, f := range fields {
				if !strings.Contains(text, f) {
					t.Errorf("%q lacks %q: %s", message, f, text)
				}
			}
			return true
		}
	}
	await := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !holds(); <-time.After(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not within 30s: %s; it logged %v", what, logged.All())
			}
		}
	}
	client := asynq.NewClientFromRedisClient(rdb)
	await("it works", func() bool { return w.Ready(t.Context()) == nil })
	for i := range 4 {
		if _, err := client.Enqueue(asynq.NewTask(HTTPTaskType, fmt.Appendf(nil, `{"url":"%s/refused/%d"}`, api.URL, i)), asynq.TaskID(fmt.Sprint("job", i))); err != nil {
			t.Fatal(err)
		}
	}
	await("the API's pause is told", told("an API told a job to try later: its limit is paused for the whole fleet", "limit:refusing", "for:10m0s", "task_id:job", "type:http:request"))

	c, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	limiter, err := c.Limiter("api")
	if err != nil {
		t.Fatal(err)
	}
	change := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = limiter.UpdateRate(t.Context(), throttle.Rate{Permits: 5, Interval: time.Second})
	change(err)
	await("the rate is told", told("a limit was changed", "limit:api", "rate:5/1s", "was:10/1s"))
	change(operate.NewFleet(rdb).Pin(t.Context(), "api"))
	change(limiter.Pause(t.Context(), time.Hour))
	await("the operator's pause is told", told("a limit is paused", "limit:api"))
	change(limiter.Resume(t.Context()))
	await("the end of the pause is told", told("a limit goes on; its pause was ended", "limit:api"))
	_, err = limiter.Delete(t.Context())
	change(err)
	await("the end of the limit is told", told("a limit was deleted; the next job creates it from the configuration", "limit:api"))

	server.Stop()
	await("that Redis is away is told", told("Redis is away; jobs wait until it is back"))
	<-time.After(2 * time.Second) // more calls fail meanwhile
	server.Restart()
	await("that it is back is told", told("Redis is back; jobs go on", "away:"))
	await("that Redis is away is told once", told("Redis is away; jobs wait until it is back"))

	stop()
	for _, message := range []string{"draining: no job starts any more", "stopped"} {
		if n := logged.FilterMessage(message).Len(); n != 2 {
			t.Errorf("%q is there %d times, want once for each pool", message, n)
		}
	}
	said := map[string]int{}
	for _, e := range logged.All() {
		if e.Level >= zap.WarnLevel {
			said[e.Message]++
		}
	}
	for message, n := range said {
		if n > 2 { // pools have a server each
			t.Errorf("%d times: %s", n, message)
		}
	}
}
