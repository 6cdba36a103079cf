package asynqlimit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// TestOperatorsRatesStay: an operator changes the rates of values of a key, one pinned and one not. Then the server has jobs
// of 10,000 other values. The next jobs of the changed values find the rates that the operator has set. Only the next server
// that starts applies its configuration to the value that is not pinned.
func TestOperatorsRatesStay(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	// Ten limits have the same key, so each job brings ten values.
	const limits, values = 10, 1001
	var yaml, names []string
	for i := range limits {
		names = append(names, fmt.Sprint("account", i))
		yaml = append(yaml, names[i]+": { rate: 10/1h, key: payload.account }")
	}
	m := member{yaml: fmt.Sprintf("limits: { %s }\njobs: { \"x:\": { limits: [%s] } }\n", strings.Join(yaml, ", "), strings.Join(names, ", ")),
		asynq: asynq.Config{Concurrency: 50}}
	stop := s.serve(m)
	job := func(id, account string) { s.enqueuePayload("x:job", id, fmt.Appendf(nil, `{"account": %q}`, account)) }
	changed := []string{"pinned", "other"}
	for _, account := range changed {
		job("first "+account, account)
	}
	s.awaitStarts("first", len(changed), 10*time.Second)
	want := throttle.Rate{Permits: 7, Interval: time.Hour, KeepAlive: 2 * time.Hour}
	for _, account := range changed {
		for _, name := range names {
			limiter := name + ":" + account
			if ok, err := s.limiter(limiter).UpdateRate(t.Context(), want); err != nil || !ok {
				t.Fatal(ok, err)
			}
			if account == "pinned" {
				if err := operate.NewFleet(s.rdb).Pin(t.Context(), limiter); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for i := range values {
		job(fmt.Sprint("others", i), fmt.Sprint(i))
	}
	s.awaitStarts("others", values, 60*time.Second)
	again := func(id string, want map[string]int64) {
		t.Helper()
		for _, account := range changed {
			job(id+account, account)
		}
		s.awaitStarts(id, len(changed), 10*time.Second)
		for account, permits := range want {
			for _, name := range names {
				if rate, err := s.limiter(name + ":" + account).Config(t.Context()); err != nil || rate.Permits != permits {
					t.Errorf("%s: %s:%s has %+v, %v; want %d permits", id, name, account, rate, err, permits)
				}
			}
		}
	}
	again("again ", map[string]int64{"pinned": 7, "other": 7})
	stop()
	s.serve(m)
	again("next server ", map[string]int64{"pinned": 7, "other": 10})
}
