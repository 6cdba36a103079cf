package asynqlimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// TestRatesForSomeValues: values have the rates that the configuration gives them, from their
// next job on, across deploys that change, add and remove rates. Used permits stay used. A rate
// that an operator has pinned stays. (At a rate below 64, a permit that a process got too late to
// use is not left unused, so the number of used permits is the number of jobs that ran.)
func TestRatesForSomeValues(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	yaml := func(rates string) string {
		return `
limits: { account: { rate: 30/1h, guard: 20ms, key: payload.account` + rates + ` } }
jobs: { "x:": { limits: [account] } }
`
	}
	accounts := []string{"acme", "zed", "a:b", "pinned", "7"}
	used := int64(0)
	deploy := func(rates string, want map[string]int64) {
		t.Helper()
		var stops []func()
		for _, name := range []string{"one", "two"} {
			stops = append(stops, s.serve(member{name: name, yaml: yaml(rates)}))
		}
		for i := range 4 { // each process gets some of them
			for _, account := range accounts {
				s.enqueuePayload("x:job", fmt.Sprint("job", used, account, i), fmt.Appendf(nil, `{"account": %q}`, account))
			}
		}
		s.awaitDone("default", 20*time.Second)
		for _, stop := range stops {
			stop()
		}
		used += 4
		for limiter, permits := range want {
			rate, err := s.limiter(limiter).Config(t.Context())
			if err != nil || rate.Permits != permits || rate.KeepAlive != 2*time.Hour || rate.Guard != 20*time.Millisecond {
				t.Errorf("%q: %s has %+v, %v; want %d permits", rates, limiter, rate, err, permits)
			}
			if left, err := s.limiter(limiter).AvailablePermits(t.Context()); err != nil || left != permits-used {
				t.Errorf("%q: %s has %d left, %v; want %d of %d used", rates, limiter, left, err, used, permits)
			}
		}
	}
	deploy(", rates: { acme: 50/1h, pinned: 40/1h, 7: 35/1h, 'a:b': 45/1h }",
		map[string]int64{"account:acme": 50, "account:zed": 30, "account:pinned": 40, "account:7": 35, "account:a%3Ab": 45})

	operator := throttle.Rate{Permits: 60, Interval: time.Hour, Guard: 20 * time.Millisecond, KeepAlive: 2 * time.Hour}
	if ok, err := s.limiter("account:pinned").UpdateRate(t.Context(), operator); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := operate.NewFleet(s.rdb).Pin(t.Context(), "account:pinned"); err != nil {
		t.Fatal(err)
	}
	deploy(", rates: { acme: 48/1h, zed: 25/1h, 7: 35/1h }",
		map[string]int64{"account:acme": 48, "account:zed": 25, "account:pinned": 60, "account:7": 35, "account:a%3Ab": 30})
	deploy("", map[string]int64{"account:acme": 30, "account:zed": 30, "account:pinned": 60, "account:7": 30, "account:a%3Ab": 30})
}

// TestCostsOfValuesWithRates: a job that costs more than the common rate, and less than the rate
// of its value, runs. A job of another value waits.
func TestCostsOfValuesWithRates(t *testing.T) {
	t.Parallel()
	for _, permits := range []string{"payload.cost", "20"} {
		s := newSite(t, redistest.Start(t))
		s.serve(member{yaml: `
limits: { account: { rate: 10/1h, key: payload.account, rates: { acme: 50/1h } } }
jobs: { "x:": { limits: [account], permits: ` + permits + ` } }
`, asynq: asynq.Config{Concurrency: 4}})
		s.enqueuePayload("x:job", "other", []byte(`{"account": "zed", "cost": 20}`))
		s.enqueuePayload("x:job", "acme", []byte(`{"account": "acme", "cost": 20}`))
		s.awaitStarts("acme", 1, 10*time.Second)
		s.awaitWaiting("default", 1)
		if n := len(s.seen("other")); n != 0 {
			t.Errorf("permits: %s: the job of another account ran", permits)
		}
	}
}
