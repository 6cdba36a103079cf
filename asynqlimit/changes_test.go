package asynqlimit_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestChangesAreTold: what somebody changes about a limit is logged once, as long as any server of the process runs.
func TestChangesAreTold(t *testing.T) {
	onBoth(t, func(s *site) {
		var log testkit.Buffer
		var second *asynqlimit.Limits
		stopFirst := s.serve(member{
			yaml: "limits: { api: { rate: 10/1s } }\njobs: { x: { limits: [api] } }\n",
			opts: asynqlimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
			made: func(l *asynqlimit.Limits) { second = l.Another(asynqlimit.Options{Concurrency: 2}) },
		})
		srv := asynq.NewServerFromRedisClient(second.Redis(), second.Configure(asynq.Config{Queues: map[string]int{"other": 1}, LogLevel: asynq.WarnLevel}))
		s.serveWith(second, srv, asynq.NewServeMux())
		client, err := throttle.New(s.rdb, throttle.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		limiter, err := client.Limiter("api")
		if err != nil {
			t.Fatal(err)
		}
		rate, told := int64(20), 0
		changed := func() {
			t.Helper()
			// Who watches may have begun just now, or have yet to begin: then it does not hear of the first change.
			s.await(5*time.Second, func() (bool, string) {
				rate++
				if _, err := limiter.UpdateRate(t.Context(), throttle.Rate{Permits: rate, Interval: time.Second}); err != nil {
					t.Fatal(err)
				}
				for wait := time.Now().Add(time.Second); time.Now().Before(wait); <-time.After(10 * time.Millisecond) {
					if told = strings.Count(log.String(), fmt.Sprintf("rate=%d/1s", rate)); told > 0 {
						return true, ""
					}
				}
				return false, log.String()
			})
			if told != 1 {
				t.Errorf("it is told %d times:\n%s", told, &log)
			}
		}
		changed()
		stopFirst()
		changed()
		for n := range rate + 1 { // by now each has had the time to be told again
			if told := strings.Count(log.String(), fmt.Sprintf("rate=%d/1s", n)); told > 1 {
				t.Errorf("%d/1s is told %d times:\n%s", n, told, &log)
			}
		}
	})
}
