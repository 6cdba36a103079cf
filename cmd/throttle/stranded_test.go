package main

import (
	"context"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/cli"
)

// TestSetBelowWhatJobsCost: a limit, or a value of one, that is lowered below the cost of jobs
// that wait for it asks first, and says how many would wait; without a terminal it
// changes nothing. Where no job costs more, it does not ask.
func TestSetBelowWhatJobsCost(t *testing.T) {
	s := newSite(t)
	w := s.workers(`
limits: { api: { rate: 10/1h }, account: { rate: 10/1h, key: header.account }, shared: { rate: 10/1h, share: header.account } }
jobs: { "x:api": { limits: [api], hold: 0, permits: header.cost }, "x:account": { limits: [account], hold: 0, permits: header.cost }, "x:shared": { limits: [shared], hold: 0, permits: header.cost } }
`)
	stop := w.start(func(context.Context, *asynq.Task) error { return nil })
	enqueue := func(typ, id, cost string) {
		t.Helper()
		_, err := w.queue.Enqueue(asynq.NewTaskWithHeaders(typ, nil, map[string]string{"cost": cost, "account": "acme"}), asynq.TaskID(id))
		s.check(err)
	}
	for n, typ := range []string{"x:api", "x:account", "x:shared"} {
		enqueue(typ, typ+" first", "10")
		w.awaitStarts(n + 1)
		for id, cost := range map[string]string{"two": "2", "five": "5", "six": "6"} {
			enqueue(typ, typ+" "+id, cost)
			w.awaitExplained(typ+" "+id, "parked")
		}
	}
	stop()
	for name, args := range map[string][]string{"api": {"set", "api"}, "shared": {"set", "shared"}, "account:acme": {"set", "account", "--value", "acme"}} {
		set := func(rate string, more ...string) outcome {
			return s.run(append(append(args, rate), more...)...)
		}
		permits := func(want int64) {
			t.Helper()
			if u := s.usage(name); u.Rate.Permits != want {
				t.Errorf("%s: %s, want %d permits", name, u.Rate, want)
			}
		}
		for rate, want := range map[string]string{"4/1h": "2 jobs that wait cost more", "5/1h": "1 job that waits costs more", "1/1h": "3 jobs that wait cost more"} {
			if got := set(rate); got.status != cli.Usage || !strings.Contains(got.stderr, want) || !strings.Contains(got.stderr, "--yes") {
				t.Errorf("%s to %s: %+v, want a question about %q", name, rate, got, want)
			}
			permits(10)
		}
		if got := set("6/1h"); got.status != cli.Done {
			t.Errorf("%s to 6: %+v", name, got)
		}
		permits(6)
		if got := set("4/1h", "--yes"); got.status != cli.Done {
			t.Errorf("%s to 4 with --yes: %+v", name, got)
		}
		permits(4)
		if got := set("3/1h"); got.status != cli.Done { // those that cost 5 and 6 cannot run anyhow
			t.Errorf("%s to 3: %+v", name, got)
		}
		permits(3)
	}
}
