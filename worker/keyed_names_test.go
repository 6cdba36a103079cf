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

	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// TestValuesNameNoOtherLimitersKeys: each value has a limiter of its own, and
// the keys of each are those of no other, whatever the values look like.
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
	cfg, err := ParseConfig("config.yaml", []byte("limits: { api: { rate: 1/1s, key: queue } }\njobs: { x: { limits: [api] } }\n"))
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
	f := newFleet(t, `
limits: { "{api}": { rate: 2/1h, type: per_client } }
pools: [ { name: default, concurrency: 4 } ]
jobs: { "x:": { limits: ["{api}"], pause_on_429: ["{api}"], hold: 0 } }
log: { level: error }
`)
	f.enqueue("x:job", "refused")
	stop := f.work(func(context.Context, *asynq.Task) error { return RetryAfter(time.Hour) })
	f.awaitThat(10*time.Second, func() (bool, string) {
		n := f.inLine("{api}")
		return n == 1, fmt.Sprintf("%d in line", n)
	})
	keys := f.rdb.Keys(t.Context(), "{api}*").Val()
	stop()
	var found []string
	for _, key := range keys {
		if key == "{api}" {
			continue
		}
		suffix, _, _ := strings.Cut(strings.TrimPrefix(key, "{api}:"), ":")
		if found = append(found, suffix); !slices.Contains(ownKeys, suffix) {
			t.Errorf("key %q: ownKeys lacks %q", key, suffix)
		}
	}
	for _, suffix := range []string{"permits", parkedKeys, refusedKeys} {
		if !slices.Contains(found, suffix) {
			t.Errorf("no key of %q in %q", suffix, keys)
		}
	}
}

// TestLimitsThatShareKeysAreRefused: no two limits of a configuration have a key of Redis in common.
func TestLimitsThatShareKeysAreRefused(t *testing.T) {
	const plain, keyed = "rate: 1/1s", "rate: 1/1s, key: payload.x"
	long := strings.Repeat("a", maxKeyLength)
	for _, tt := range []struct {
		limits [][2]string // name and settings
		key    string      // of the error; empty if the limits are fine
		want   string
	}{
		{[][2]string{{"api", keyed}, {"api:vip", plain}}, "limits.api:vip", `"api"`},
		{[][2]string{{"api", keyed}, {"api:vip", keyed}}, "limits.api:vip", `"api"`},
		{[][2]string{{"api", keyed}, {"api:vip:x", plain}}, "limits.api:vip:x", `"api"`},
		{[][2]string{{"api:a", keyed}, {"api:a:b", plain}, {"api", plain}}, "limits.api:a:b", `"api:a"`},
		{[][2]string{{"{s}:account", keyed}, {"{s}:account:vip", plain}}, "limits.{s}:account:vip", `"{s}:account"`},
		{[][2]string{{"{s}", keyed}, {"{s}:account", plain}}, "limits.{s}:account", `"{s}"`},
		{[][2]string{{"{s}", keyed}, {"s", plain}}, "limits.{s}", `"s"`},
		{[][2]string{{"{s}", plain}, {"s", plain}}, "limits.{s}", `"s"`},
		{[][2]string{{"api", keyed}, {"{api:vip}", plain}}, "limits.{api:vip}", `"api"`},
		{[][2]string{{"api", plain}, {"{api}:permits", plain}}, "limits.{api}:permits", `"api"`},
		{[][2]string{{"{s}", plain}, {"{s}:value", keyed}}, "limits.{s}:value", `"{s}"`},
		{[][2]string{{"{s}", plain}, {"{s}:parked:called", plain}}, "limits.{s}:parked:called", `"{s}"`},
		{[][2]string{{"{s}", plain}, {"{s}:refused", plain}}, "limits.{s}:refused", `"{s}"`},
		{[][2]string{{"{s}:a", plain}, {"{s}:a:clients", plain}}, "limits.{s}:a:clients", `"{s}:a"`},
		{[][2]string{{"jobthrottle", keyed}}, "limits.jobthrottle", "jobthrottle"},
		{[][2]string{{"jobthrottle:parked", plain}}, "limits.jobthrottle:parked", "jobthrottle"},
		{[][2]string{{"{jobthrottle:parked}", plain}}, "limits.{jobthrottle:parked}", "jobthrottle"},
		{[][2]string{{"{jobthrottle:parked}:default", keyed}}, "limits.{jobthrottle:parked}:default", "jobthrottle"},
		{[][2]string{{"asynq", keyed}}, "limits.asynq", "asynq"},
		{[][2]string{{"asynq:queues", plain}}, "limits.asynq:queues", "asynq"},
		{[][2]string{{long, keyed}}, "limits." + long, "127"},

		{[][2]string{{"api", plain}, {"api:vip", plain}}, "", ""},
		{[][2]string{{"api", plain}, {"api:vip", keyed}}, "", ""},
		{[][2]string{{"api", plain}, {"api:permits", plain}}, "", ""},
		{[][2]string{{"api", keyed}, {"apis", plain}, {"api-vip", plain}}, "", ""},
		{[][2]string{{"{s}", plain}, {"{s}:account", keyed}, {"{s}:worker", plain}, {"{s}-values", keyed}}, "", ""},
		{[][2]string{{"{s}:account", keyed}, {"{s}:accounts", keyed}, {"{s2}:account", keyed}}, "", ""},
		{[][2]string{{"asynq", plain}, {"jobthrottle", plain}, {"jobthrottles", keyed}}, "", ""},
		{[][2]string{{long, plain}, {long[1:], keyed}}, "", ""},
	} {
		var names []string
		yaml := "limits:\n"
		for _, l := range tt.limits {
			names = append(names, fmt.Sprintf("%q", l[0]))
			yaml += fmt.Sprintf("  %q: { %s }\n", l[0], l[1])
		}
		yaml += fmt.Sprintf("jobs: { x: { limits: [%s] } }\n", strings.Join(names, ", "))
		_, err := ParseConfig("config.yaml", []byte(yaml))
		cerr, refused := errors.AsType[*ConfigError](err)
		switch {
		case tt.key == "" && err != nil:
			t.Errorf("%s: %v, want it accepted", yaml, err)
		case tt.key != "" && (!refused || cerr.Key != tt.key || !strings.Contains(cerr.Msg, tt.want) || !strings.Contains(cerr.Msg, "want")):
			t.Errorf("%s: error %v, want one of %s that names %s", yaml, err, tt.key, tt.want)
		case tt.key != "":
			at := 2 + slices.IndexFunc(tt.limits, func(l [2]string) bool { return "limits."+l[0] == tt.key })
			if cerr.Line != at || cerr.Column != 3 {
				t.Errorf("%s: at %d:%d, want %d:3", yaml, cerr.Line, cerr.Column, at)
			}
		}
	}
}
