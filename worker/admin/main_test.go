package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/strictapi"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
	"github.com/jobthrottle/jobthrottle/worker"
	"github.com/jobthrottle/jobthrottle/worker/admin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "a token of some length"

// site is workers of one fleet, the API that their jobs call, and the admin
// address of the first of them.
type site struct {
	tb     testing.TB
	rdb    *redis.Client
	api    *strictapi.API
	apiURL string
	first  *worker.Worker
	server *admin.Server // the admin
	addr   string        // its address
}

// newSite starts n workers with this configuration, in which $API is the host of the API.
func newSite(tb testing.TB, n int, yaml, adminToken string) *site {
	tb.Helper()
	s := &site{tb: tb, api: strictapi.New(1_000_000, time.Second)}
	api := httptest.NewServer(s.api)
	tb.Cleanup(api.Close)
	s.apiURL = api.URL
	addr := redistest.Start(tb)
	s.rdb = redis.NewClient(&redis.Options{Addr: addr})
	tb.Cleanup(func() { s.rdb.Close() })
	yaml = strings.ReplaceAll(yaml, "$API", api.Listener.Addr().String())
	cfg, err := config.Parse("config.yaml", []byte(fmt.Sprintf("redis: {addrs: [%q]}\n%s", addr, yaml)))
	if err != nil {
		tb.Fatal(err)
	}
	for range n {
		w := s.work(cfg)
		if s.first != nil {
			continue
		}
		s.first = w
		listener, err := admin.Listen("127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		s.server = admin.Serve(listener, w, admin.Options{Token: adminToken})
		tb.Cleanup(func() {
			http.DefaultClient.CloseIdleConnections()
			if err := s.server.Close(); err != nil {
				tb.Errorf("close: %v", err)
			}
		})
		s.addr = listener.Addr().String()
	}
	return s
}

// work runs a worker until the test ends, and returns when it takes jobs.
func (s *site) work(cfg *config.Config) *worker.Worker {
	s.tb.Helper()
	w, err := worker.New(cfg, zap.NewNop())
	if err != nil {
		s.tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	s.tb.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			s.tb.Errorf("Run: %v", err)
		}
	})
	s.await(10*time.Second, func() (bool, string) {
		err := w.Ready(s.tb.Context())
		return err == nil, fmt.Sprint("the worker is not ready: ", err)
	})
	return w
}

// enqueue adds n jobs of an account.
func (s *site) enqueue(n int, queue, account string) {
	s.tb.Helper()
	client := asynq.NewClientFromRedisClient(s.rdb)
	payload, err := json.Marshal(map[string]string{"method": "GET", "url": s.apiURL, "account": account})
	if err != nil {
		s.tb.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 10 {
		group.Go(func() {
			for range n/10 + min(max(n%10-i, 0), 1) {
				if _, err := client.Enqueue(asynq.NewTask(worker.HTTPTaskType, payload), asynq.Queue(queue), asynq.MaxRetry(3)); err != nil {
					s.tb.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// await waits until the condition holds.
func (s *site) await(within time.Duration, condition func() (bool, string)) {
	s.tb.Helper()
	timeout := time.After(within)
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		ok, state := condition()
		if ok {
			return
		}
		select {
		case <-timeout:
			s.tb.Fatalf("after %v: %s", within, state)
		case <-poll.C:
		}
	}
}

// awaitCreated waits until the limiters are in Redis.
func (s *site) awaitCreated(limiters ...string) {
	s.tb.Helper()
	s.await(10*time.Second, func() (bool, string) {
		found, err := operate.NewFleet(s.rdb).Inspect(s.tb.Context(), limiters...)
		if err != nil {
			s.tb.Fatal(err)
		}
		return len(found) == len(limiters), fmt.Sprintf("%d of %d limiters are there", len(found), len(limiters))
	})
}

// usage is what Redis has of a limiter.
func (s *site) usage(limiter string) operate.FleetUsage {
	s.tb.Helper()
	found, err := operate.NewFleet(s.rdb).Inspect(s.tb.Context(), limiter)
	if err != nil || len(found) != 1 {
		s.tb.Fatalf("%d limiters named %q, %v", len(found), limiter, err)
	}
	return found[0]
}
