package worker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestOverviewBounded: of more lines than can be read it reads as many as it
// says, and it names the longest of a keyed limit.
func TestOverviewBounded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 5/1s }, account: { rate: 5/1s, key: payload.account } }
pools: [ { name: a, concurrency: 4, queues: {low: 1, high: 5} }, { name: b, concurrency: 2, queues: {other: 1} } ]
jobs: { "x:both": { limits: [api, account] }, "x:one": { limits: [api] } }
`)
	cfg, err := config.Parse("config.yaml", []byte(f.yaml))
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWithClient(cfg, zap.NewNop(), f.rdb)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.close() })
	const lines = jobview.MaxLines + 200
	for i := range lines {
		name := fmt.Sprintf("account:%04d", i)
		for range 1 + i%3 {
			id := fmt.Sprintf("%d-%d", i, f.rdb.Incr(t.Context(), "ids").Val())
			if err := f.rdb.ZAdd(t.Context(), "asynq:{low}:jt:line:"+name, redis.Z{Member: id}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		l, err := w.throttle.Limiter(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.SetRate(t.Context(), throttle.Rate{Permits: 5, Interval: time.Second}); err != nil {
			t.Fatal(err)
		}
		if err := f.rdb.ZAdd(t.Context(), "asynq:{low}:jt:lines", redis.Z{Member: name}).Err(); err != nil { // to be visited at once, like all others
			t.Fatal(err)
		}
	}
	o, err := w.Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o.Unread != 200 {
		t.Errorf("%d lines unread, want 200", o.Unread)
	}
	account, api := o.Limits[0], o.Limits[1]
	if account.Name != "account" || account.Lines != jobview.MaxLines || account.Key != "payload.account" || len(account.Jobs) != 1 {
		t.Errorf("%+v", account)
	}
	if len(account.Limiters) != jobview.MaxLimiters {
		t.Errorf("%d limiters, want %d", len(account.Limiters), jobview.MaxLimiters)
	}
	for _, l := range account.Limiters {
		if l.Parked != 3 {
			t.Errorf("%s has %d parked: there are longer lines, of 3", l.Name, l.Parked)
		}
	}
	if api.Name != "api" || len(api.Limiters) != 0 || api.Parked != 0 || len(api.Jobs) != 2 {
		t.Errorf("api, which nobody has created: %+v", api)
	}
	if len(o.Pools) != 2 || o.Pools[0].Queues[0].Name != "high" || o.Pools[0].Queues[1].Weight != 1 {
		t.Errorf("%+v", o.Pools)
	}
}

// TestLimiterOfName: which names operators may use, and the errors for other names.
func TestLimiterOfName(t *testing.T) {
	cfg := config.Default()
	cfg.Limits = map[string]config.Limit{
		"api": {Rate: "5/1s"}, "{tag}:x": {Rate: "5/1s"}, "account": {Rate: "7/1s", Key: "payload.account"}, "a/b": {Rate: "5/1s"},
	}
	cfg.Jobs = map[string]config.Job{"x": {Limits: []string{"api", "{tag}:x", "account", "a/b"}}}
	w, err := New(cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.close() })
	for _, name := range []string{"api", "{tag}:x", "a/b", "account:acme", "account:a/b%3Ac"} {
		l, rate, err := w.Limiter(name)
		if err != nil || l.Name() != name || rate.Permits == 0 {
			t.Errorf("%q: %v, %v", name, rate, err)
		}
	}
	for name, unknown := range map[string]bool{
		"other": true, "account": true, "api:x": true, "asynq:queues": true,
		"": false, "account:": false, "account:{x}": false, "{api}": false, "x/y": false, "a\x00": false, strings.Repeat("a", 10_000): false,
	} {
		_, _, err := w.Limiter(name)
		if err == nil || errors.Is(err, ErrUnknownLimit) != unknown {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}
