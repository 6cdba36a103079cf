package plan

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/throttle"
)

const several = `
limits:
  api: { rate: 100/1s }
  worker: { rate: 25/1s, type: per_client }
  account: { rate: 5/1s, key: payload.account }
  tenant: { rate: 7/1s, key: header.tenant }
  queue: { rate: 9/1s, key: queue }
jobs:
  "x:": { limits: [api, account], permits: payload.cost }
  "y:": { limits: [tenant, worker, queue] }
  "llm": { limits: [api, account, queue], permits: { account: payload.cost, queue: payload.usage.n } }
  "fixed": { limits: [api, worker], permits: 3 }
  "free": {}
`

// drawsOf writes a plan as tests compare it: limit, limiter and cost.
func drawsOf(p Plan) []string {
	var draws []string
	for _, d := range p.Draws {
		draws = append(draws, fmt.Sprintf("%s=%s %d", d.Limit.Name, d.Limiter, d.Cost))
	}
	return draws
}

func TestPlan(t *testing.T) {
	js := jobsOf(t, several)
	for _, tt := range []struct {
		name string
		task Task
		job  string
		want []string
	}{
		{"key and cost of the payload", Task{Type: "x:a", Payload: []byte(`{"account": "acme", "cost": 4}`)}, "x:", []string{"api=api 4", "account=account:acme 4"}},
		{"a number for a key, text for a cost", Task{Type: "x:a", Payload: []byte(`{"account": 7, "cost": "5"}`)}, "x:", []string{"api=api 5", "account=account:7 5"}},
		{"more than the limit of the file", Task{Type: "x:a", Payload: []byte(`{"account": 7, "cost": 4294967295}`)}, "x:", []string{"api=api 4294967295", "account=account:7 4294967295"}},
		{"escapes", Task{Type: "x:a", Payload: []byte(`{"account": "a:b%", "cost": 1}`)}, "x:", []string{"api=api 1", "account=account:a%3Ab%25 1"}},
		{"header and queue", Task{Type: "y:a", Queue: "low", Headers: map[string]string{"tenant": "t"}}, "y:", []string{"tenant=tenant:t 1", "worker=worker 1", "queue=queue:low 1"}},
		{"costs by limit", Task{Type: "llm", Queue: "low", Payload: []byte(`{"account": "acme", "cost": 4, "usage": {"n": "70"}}`)}, "llm", []string{"api=api 1", "account=account:acme 4", "queue=queue:low 70"}},
		{"a fixed cost needs no payload", Task{Type: "fixed"}, "fixed", []string{"api=api 3", "worker=worker 3"}},
		{"no limits", Task{Type: "free", Payload: []byte("not JSON")}, "free", nil},
		{"no job", Task{Type: "z", Payload: []byte("not JSON")}, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := js.Plan(tt.task)
			if err != nil {
				t.Fatal(err)
			}
			job := ""
			if p.Job != nil {
				job = p.Job.Name
			}
			if got := drawsOf(p); job != tt.job || !slices.Equal(got, tt.want) {
				t.Errorf("job %q draws %q, want %q and %q", job, got, tt.job, tt.want)
			}
		})
	}
}

// TestMistakes: what is wrong with a task names its type, the job, the limit, what
// is read and what to change, and the limiters that are known are still there.
func TestMistakes(t *testing.T) {
	js := jobsOf(t, several)
	const key, cost = "correct limits.account.key, or the job", "correct jobs.x:.permits, or the job"
	for name, tt := range map[string]struct {
		payload string
		want    Mistake
		says    string
		mend    string
		draws   []string
	}{
		"no payload": {"", Mistake{Reason: BadCost, Path: "payload.cost"}, `permits: payload is not a JSON object`, cost, []string{"api=api 0"}},
		"no key":     {`{"cost": 2}`, Mistake{Reason: BadKey, Limit: "account", Path: "payload.account"}, `limit "account": the payload has no account`, key, []string{"api=api 2"}},
		"empty key":  {`{"cost": 2, "account": ""}`, Mistake{Reason: BadKey, Limit: "account", Path: "payload.account"}, `the key of limit "account" is empty`, key, []string{"api=api 2"}},
		"object":     {`{"cost": 2, "account": {}}`, Mistake{Reason: BadKey, Limit: "account", Path: "payload.account"}, `limit "account": payload.account is not a string, number or boolean`, key, []string{"api=api 2"}},
		"braces":     {`{"cost": 2, "account": "a{b}"}`, Mistake{Reason: BadKey, Limit: "account", Path: "payload.account"}, `the key of limit "account" has braces or control characters: "a{b}"`, key, []string{"api=api 2"}},
		"no cost":    {`{"account": "a"}`, Mistake{Reason: BadCost, Path: "payload.cost"}, `permits: the payload has no cost`, cost, []string{"api=api 0", "account=account:a 0"}},
		"fraction":   {`{"account": "a", "cost": 1.5}`, Mistake{Reason: BadCost, Path: "payload.cost"}, `permits: payload.cost is "1.5": want a whole number from 1 to 4294967295`, cost, []string{"api=api 0", "account=account:a 0"}},
		"below 1":    {`{"account": "a", "cost": 0}`, Mistake{Reason: BadCost, Path: "payload.cost"}, `permits: payload.cost is "0": want a whole number from 1 to 4294967295`, cost, []string{"api=api 0", "account=account:a 0"}},
		"both":       {`{"cost": null}`, Mistake{Reason: BadCost, Path: "payload.cost"}, `permits: payload.cost is not a string, number or boolean`, cost, []string{"api=api 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := js.Plan(Task{Type: "x:a", Payload: []byte(tt.payload)})
			got, ok := errors.AsType[*Mistake](err)
			if !ok {
				t.Fatalf("error %v, want a *Mistake", err)
			}
			if got.Error() != tt.says || got.Fix() != tt.mend {
				t.Errorf("\ngot  %s: %s\nwant %s: %s", got, got.Fix(), tt.says, tt.mend)
			}
			want := tt.want
			want.Type, want.Job, want.Err = "x:a", "x:", got.Err
			if *got != want {
				t.Errorf("got %+v, want %+v", *got, want)
			}
			if p.Job == nil || p.Job.Name != "x:" || !slices.Equal(drawsOf(p), tt.draws) {
				t.Errorf("plan %v of %v, want %q of x:", drawsOf(p), p.Job, tt.draws)
			}
		})
	}
}

// TestMistakesByLimit: a cost of one limit that cannot be read names the limit, and
// the others keep their costs.
func TestMistakesByLimit(t *testing.T) {
	js := jobsOf(t, several)
	for payload, want := range map[string]struct {
		mistake Mistake
		says    string
		draws   []string
	}{
		`{"account": "a", "cost": -1, "usage": {"n": 2}}`: {
			Mistake{Reason: BadCost, Limit: "account", Path: "payload.cost"},
			`limit "account": permits: payload.cost is "-1": want a whole number from 1 to 4294967295: correct jobs.llm.permits.account, or the job`,
			[]string{"api=api 1", "account=account:a 0", "queue=queue:q 2"},
		},
		`{"account": "a", "cost": 5, "usage": 2}`: {
			Mistake{Reason: BadCost, Limit: "queue", Path: "payload.usage.n"},
			`limit "queue": permits: payload.usage is not a JSON object: correct jobs.llm.permits.queue, or the job`,
			[]string{"api=api 1", "account=account:a 5", "queue=queue:q 0"},
		},
	} {
		p, err := js.Plan(Task{Type: "llm", Queue: "q", Payload: []byte(payload)})
		got, ok := errors.AsType[*Mistake](err)
		if !ok {
			t.Fatalf("%s: error %v, want a *Mistake", payload, err)
		}
		want.mistake.Type, want.mistake.Job, want.mistake.Err = "llm", "llm", got.Err
		if says := got.Error() + ": " + got.Fix(); *got != want.mistake || says != want.says {
			t.Errorf("%s:\ngot  %+v\nwant %+v\nsays %s\nwant %s", payload, *got, want.mistake, says, want.says)
		}
		if draws := drawsOf(p); !slices.Equal(draws, want.draws) {
			t.Errorf("%s: draws %q, want %q", payload, draws, want.draws)
		}
	}
}

// FuzzPlan: a task has a plan that takes from each limit, of limiters that the
// throttle knows by these names, or a *Mistake that says what to change; and it has
// the same one each time.
func FuzzPlan(f *testing.F) {
	for _, payload := range []string{
		`{"a":"x","n":1}`, `{"a":{"b":1e3},"n":"2"}`, `{"a":true,"n":1.0}`, `{"a":null}`, `{"a":[1]}`, `{"a":"{x}","n":1}`, `{"a":"\u0000","n":-1}`, `{"a":"\ud800"}`,
		`{"a":1,"a":2}`, `{"a":"x:permits","n":4294967296}`, `{"a":"50%","n":4294967295}`, `[`, `"a"`, ``, "{\"a\":\"\xff\"}",
	} {
		for _, path := range []string{"payload.a", "payload.a.b", "header.h", "queue"} {
			f.Add("x:y", "default", path, "payload.n", []byte(payload), "h")
		}
		f.Add("other", "low", "payload.a", "3", []byte(payload), "h")
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nobody asks it anything
	f.Cleanup(func() { rdb.Close() })
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { client.Close() })
	f.Fuzz(func(t *testing.T, taskType, queue, key, permits string, payload []byte, header string) {
		cfg := config.Default()
		cfg.Limits = map[string]config.Limit{"{s}": {Rate: "4000000000/1s"}, "keyed": {Rate: "4000000000/1s", Key: key}}
		cfg.Jobs = map[string]config.Job{"x:": {Limits: []string{"{s}", "keyed"}, Permits: config.Permits{Each: permits}}}
		if cfg.Validate() != nil {
			return
		}
		js, err := New(cfg)
		if err != nil {
			t.Fatalf("a valid configuration: %v", err)
		}
		task := Task{Type: taskType, Queue: queue, Payload: payload, Headers: map[string]string{"h": header}}
		p, err := js.Plan(task)
		again, errAgain := js.Plan(task)
		if !reflect.DeepEqual(p, again) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Errorf("one task has two plans: %+v, %v and %+v, %v", p, err, again, errAgain)
		}
		for _, d := range p.Draws {
			if _, err := client.Limiter(d.Limiter); err != nil {
				t.Errorf("%q: %v", d.Limiter, err)
			}
			if d.Limiter != d.Limit.Name && (d.Limit.Key == "" || !strings.HasPrefix(d.Limiter, d.Limit.Name+":")) {
				t.Errorf("limit %q has a limiter %q", d.Limit.Name, d.Limiter)
			}
			if err == nil && (d.Cost < 1 || d.Cost > throttle.MaxPermits) {
				t.Errorf("limit %q: cost %d", d.Limit.Name, d.Cost)
			}
		}
		matches := strings.HasPrefix(taskType, "x:")
		if matches != (p.Job != nil) || err == nil && matches && len(p.Draws) != 2 {
			t.Errorf("type %q: %d draws of %v", taskType, len(p.Draws), p.Job)
		}
		mistake, ok := errors.AsType[*Mistake](err)
		if err != nil && !ok {
			t.Fatalf("error %T %v, want a *Mistake", err, err)
		}
		if ok && (mistake.Type != taskType || mistake.Job != "x:" || mistake.Path == "" || mistake.Fix() == "" || (mistake.Reason == BadKey) != (mistake.Limit == "keyed")) {
			t.Errorf("%+v", mistake)
		}
	})
}

// TestDryRun: a limit with dry_run is no part of what a task has to get, whatever is
// wrong with it, and pauses nothing.
func TestDryRun(t *testing.T) {
	js := jobsOf(t, `
limits: { a: { rate: 1/1s }, b: { rate: 1/1s, key: payload.x, dry_run: true }, c: { rate: 9/1s, dry_run: true } }
jobs: { t: { limits: [b, a, c], permits: { c: payload.n }, pause_on_429: [a, b] } }
`)
	for payload, want := range map[string]string{
		`{"x": "v", "n": 2}`: "a 1 true; b:v 1 <nil>, c 2 <nil>",
		`{"n": 2}`:           `a 1 true;  1 limit "b": the payload has no x, c 2 <nil>`,
	} {
		p, err := js.Plan(Task{Type: "t", Payload: []byte(payload)})
		if err != nil || len(p.Draws) != 1 || len(p.Dry) != 2 {
			t.Fatalf("%s: %+v, %v", payload, p, err)
		}
		d := p.Draws[0]
		got := fmt.Sprintf("%s %d %v; %s %d %v, %s %d %v", d.Limiter, d.Cost, d.Pauses, p.Dry[0].Limiter, p.Dry[0].Cost, p.Dry[0].Mistake, p.Dry[1].Limiter, p.Dry[1].Cost, p.Dry[1].Mistake)
		if got != want {
			t.Errorf("%s:\n%s\nwant\n%s", payload, got, want)
		}
		if p.Dry[0].Pauses {
			t.Errorf("%s: it pauses a limit with dry_run", payload)
		}
	}
}
