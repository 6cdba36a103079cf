package asynqlimit_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// fiveAnHour limits some jobs, and others not.
const fiveAnHour = `
limits: { api: { rate: 5/1h } }
jobs: { "x:limited": { limits: [api] }, "y:free": {} }
`

// second is how a second server is made with the limits of the first, and when it starts.
type second struct {
	client, config, starts string
}

// TestSecondServer: Serve runs one server, and a second one is made with the same limits. It gets no job, because no limit
// would apply. The log says once what to do. The first goes on, unless both have the same client: then nobody can tell which
// of them asks for a job, and neither gets one.
func TestSecondServer(t *testing.T) {
	t.Parallel()
	for _, client := range []string{"client of its own", "same client"} {
		for _, config := range []string{"same configuration", "configured again", "not configured"} {
			for _, starts := range []string{"before Serve", "beside the first", "after the first"} {
				t.Run(client+", "+config+", "+starts, func(t *testing.T) {
					t.Parallel()
					checkSecond(t, second{client, config, starts})
				})
			}
		}
	}
}

func checkSecond(t *testing.T, how second) {
	s := newSite(t, redistest.Start(t))
	var log logged
	limits := s.limitsWith(fiveAnHour, asynqlimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	t.Cleanup(func() { limits.Close() })
	mux := func(name string) *asynq.ServeMux {
		mux := asynq.NewServeMux()
		mux.HandleFunc("x:limited", s.handler(member{name: name}))
		mux.HandleFunc("y:free", s.handler(member{name: name}))
		return mux
	}
	theirs := asynq.Config{Concurrency: 10, LogLevel: asynq.FatalLevel}
	rdb, config := limits.Redis(), limits.Configure(theirs)
	first := asynq.NewServerFromRedisClient(rdb, config)
	start := func() (stop func()) {
		t.Helper()
		if how.client == "client of its own" {
			rdb = limits.Redis()
		}
		switch how.config {
		case "configured again":
			config = limits.Configure(theirs)
		case "not configured":
			config = theirs
		}
		srv := asynq.NewServerFromRedisClient(rdb, config)
		if err := srv.Start(mux("second")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(srv.Shutdown)
		return srv.Shutdown
	}
	bySecond := func() (n int) {
		for _, st := range s.seen("") {
			if st.server == "second" {
				n++
			}
		}
		return n
	}
	const jobs, free = 40, 20
	enqueue := func(id string) {
		for i := range jobs {
			s.enqueue("x:limited", fmt.Sprint(id, i))
		}
	}
	enqueue("limited")
	var stop, stopSecond func()
	if how.starts == "before Serve" {
		stopSecond = start()
		s.await(10*time.Second, func() (bool, string) {
			return len(log.with("limits.Serve(ctx, srv, mux)")) > 0, "the log does not say that the second server was started without Serve"
		})
		stop = s.serveWith(limits, first, mux("first"))
	} else {
		stop = s.serveWith(limits, first, mux("first"))
		s.awaitStarts("limited", 5, 10*time.Second)
		if how.starts == "after the first" {
			stop()
		}
		stopSecond = start()
	}
	enqueue("limited later")
	s.await(10*time.Second, func() (bool, string) {
		return len(log.with("limits.Another")) > 0 || bySecond() > 1, "the log does not say what to do"
	})
	if how.client == "client of its own" && how.starts != "after the first" {
		for i := range free {
			s.enqueue("y:free", fmt.Sprint("free", i))
		}
		s.awaitStarts("free", free, 10*time.Second)
	}
	stopSecond()
	stop()
	most := 0
	if how.client == "same client" && how.starts == "beside the first" {
		most = 1 // it may take one before it has shown itself
	}
	if n := bySecond(); n > most {
		t.Errorf("the second server ran %d jobs without limits, of %d that started; the limit is 5", n, len(s.seen("")))
	}
	if n := len(s.seen("limited")); n > 5+most {
		t.Errorf("%d starts, and the limit is 5", n)
	}
	if told := log.with("limits.Another"); len(told) != 1 || !strings.Contains(told[0], "level=ERROR") {
		t.Errorf("told %q, want one error that names limits.Another", told)
	}
}

// TestConfiguredWhileItServes: a configuration for a second server changes nothing for the one that Serve runs.
func TestConfiguredWhileItServes(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var limits *asynqlimit.Limits
	s.serve(member{yaml: fiftyPerSecond, made: func(l *asynqlimit.Limits) { limits = l }})
	s.enqueue("x:limited", "first")
	s.awaitStarts("first", 1, 10*time.Second)
	limits.Configure(asynq.Config{Queues: map[string]int{"other": 1}})
	s.enqueue("x:limited", "second")
	s.awaitStarts("second", 1, 10*time.Second)
}

// TestShownConcurrency: asynq's Inspector shows how many jobs a server takes: those that run, and those that may wait in it.
func TestShownConcurrency(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.serve(member{yaml: fiveAnHour, asynq: asynq.Config{Concurrency: 10}, opts: asynqlimit.Options{MaxWaiting: 7}})
	s.await(10*time.Second, func() (bool, string) {
		servers, err := s.inspector.Servers()
		return err == nil && len(servers) == 1 && servers[0].Concurrency == 17, fmt.Sprintf("%+v, %v", servers, err)
	})
}
