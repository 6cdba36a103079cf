package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// TestValuesNameNoOtherLimitersKeys: each value has a limiter of its own, and no two limiters
// have a key in common, whatever the values are.
func TestValuesNameNoOtherLimitersKeys(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits:
  "{stripe}": { rate: 100/1h }
  "{stripe}:account": { rate: 1/1h, key: payload.account }
pools: [ { name: default, concurrency: 20 } ]
jobs: { "x:": { limits: ["{stripe}", "{stripe}:account"], hold: 0 } }
log: { level: error }
`)
	values := []string{
		"acme", "acme:permits", "acme:value", "acme:permits:x", "acme:clients", "acme:parked", "acme:parked:called", "acme:reply", "acme:",
		"acme%3Apermits", "acme%253Apermits", "acme%3apermits", "acme%", "acme%25", ":", "%", "%3A", "permits", "Zürich:7", "urn:isbn:0451450523",
		strings.Repeat(":", 128),
	}
	for i, value := range values {
		for _, n := range []string{"first", "second"} {
			id := fmt.Sprintf("%s %d", n, i)
			task := asynq.NewTask("x:y", fmt.Appendf(nil, `{"account": %q}`, value))
			if _, err := f.client.Enqueue(task, asynq.TaskID(id), asynq.MaxRetry(3), asynq.Retention(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.work(nil)
	var lines []Line
	f.awaitThat(20*time.Second, func() (bool, string) {
		var err error
		if lines, err = NewInspector(f.rdb).Lines(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(f.seen()) >= len(values) && len(lines) == len(values), fmt.Sprintf("%d of %d started, %d in line", len(f.seen()), len(values), len(lines))
	})
	for id, n := range countIDs(f.seen()) {
		if n != 1 {
			t.Errorf("%s started %d times", id, n)
		}
	}
	started := map[string]int{}
	for _, s := range f.seen() {
		_, value, _ := strings.Cut(s.id, " ")
		started[value]++
	}
	for i, value := range values {
		if n := started[fmt.Sprint(i)]; n != 1 {
			t.Errorf("%d jobs of value %q started, want 1: it has one permit", n, value)
		}
	}
	for _, line := range lines {
		if line.Parked+line.Called != 1 {
			t.Errorf("%d jobs wait for limiter %q, want 1", line.Parked+line.Called, line.Limiter)
		}
		if value := strings.TrimPrefix(line.Limiter, "{stripe}:account:"); strings.Contains(value, ":") {
			t.Errorf("limiter %q: a colon of its value is not escaped", line.Limiter)
		}
	}
	usages, err := operate.NewFleet(f.rdb).Inspect(t.Context(), "{stripe}:account:acme", "{stripe}:account:acme%3Apermits", "{stripe}:account:acme%253Apermits")
	if err != nil || len(usages) != 3 {
		t.Fatalf("%d of 3 limiters, error %v", len(usages), err)
	}
	for _, u := range usages {
		if u.Used != 1 {
			t.Errorf("limiter %q: %d permits used, want 1", u.Name, u.Used)
		}
	}
}

func countIDs(starts []start) map[string]int {
	n := map[string]int{}
	for _, s := range starts {
		n[s.id]++
	}
	return n
}

// TestOperatorsNameValues: the limiter of a value is found by its escaped name.
func TestOperatorsNameValues(t *testing.T) {
	cfg, err := config.Parse("config.yaml", []byte("limits: { api: { rate: 1/1s, key: queue } }\njobs: { x: { limits: [api] } }\n"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for name, want := range map[string]string{"api:a": "", "api:a%3Ab": "", "api:50%25": "", "api:a:b": `"api:a%3Ab"`, "api:50%": `"api:50%25"`, "api:a%3ab": `"api:a%253ab"`, "api:": "empty"} {
		l, _, err := w.Limiter(name)
		if want == "" && (err != nil || l.Name() != name) {
			t.Errorf("%s: limiter %v, error %v", name, l, err)
		}
		if want != "" && (err == nil || errors.Is(err, ErrUnknownLimit) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want one with %s", name, err, want)
		}
	}
}

// TestOwnKeysAreKnown: whatever keys a limiter gets in Redis, no limit may be
// named like one of them.
func TestOwnKeysAreKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, limit, job string
		keys             []string
	}{
		{"for each worker", "{ rate: 2/1h, type: per_client }", `{ limits: ["{api}"], pause_on_429: ["{api}"], hold: 0 }`, []string{"permits", "queues", "refused"}},
		{"of tenants", "{ rate: 1/1s, share: payload.tenant }", `{ limits: ["{api}"] }`, []string{"permits", "queues", "finish"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, `
limits: { "{api}": `+c.limit+` }
pools: [ { name: default, concurrency: 4 } ]
jobs: { "x:": `+c.job+` }
log: { level: error }
`)
			for i := range 6 {
				task := asynq.NewTask("x:job", fmt.Appendf(nil, `{"tenant":"t%d"}`, i%2))
				if _, err := f.client.Enqueue(task); err != nil {
					t.Fatal(err)
				}
			}
			stop := f.work(func(context.Context, *asynq.Task) error {
				if strings.Contains(c.limit, "per_client") {
					return RetryAfter(time.Hour)
				}
				return nil
			})
			var keys, found []string
			f.awaitThat(10*time.Second, func() (bool, string) {
				keys, found = f.rdb.Keys(t.Context(), "{api}*").Val(), nil
				for _, key := range keys {
					if key != "{api}" {
						suffix, _, _ := strings.Cut(strings.TrimPrefix(key, "{api}:"), ":")
						found = append(found, suffix)
					}
				}
				missing := slices.DeleteFunc(slices.Clone(c.keys), func(suffix string) bool { return slices.Contains(found, suffix) })
				return len(missing) == 0, fmt.Sprintf("no key of %q in %q", missing, keys)
			})
			stop()
			for _, suffix := range found {
				name := "{api}:" + suffix
				_, err := config.Parse("config.yaml", fmt.Appendf(nil, "limits: { %q: { rate: 1/1s }, %q: { rate: 1/1s } }\njobs: { x: { limits: [ %[1]q, %[2]q ] } }\n", "{api}", name))
				if refused, ok := errors.AsType[*config.Error](err); !ok || refused.Key != "limits."+name {
					t.Errorf("a limit may be named %q, error %v", name, err)
				}
			}
		})
	}
}
