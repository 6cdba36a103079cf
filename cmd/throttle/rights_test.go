package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// operation is a verb, and calls of it that succeed on the fleet of newFleetState.
type operation struct {
	verb  string
	calls [][]string
}

// inFlight is the verb whose fleet has a limit in flight as well. Others need more rights there.
const inFlight = "holders"

// operations are all verbs that use Redis.
var operations = []operation{
	{"list", [][]string{{"list"}}},
	{"show", [][]string{{"show", "api"}, {"show", "each"}}},
	{"top", [][]string{{"top"}}},
	{"set", [][]string{{"set", "api", "50/1s"}, {"set", "api", "50/1s", "--pin"}, {"set", "each", "9/1h", "--yes"}, {"set", "each", "--per-client=false", "--yes"}, {"set", "new", "5/1s", "--create"}}},
	{"pin", [][]string{{"pin", "api"}}},
	{"unpin", [][]string{{"unpin", "pinned"}}},
	{"pause", [][]string{{"pause", "api", "1h"}}},
	{"resume", [][]string{{"resume", "pinned"}}},
	{"delete", [][]string{{"delete", "api", "--yes"}, {"delete", "each", "--yes"}}},
	{"explain", [][]string{{"explain", "--task", "parked"}, {"explain", "--task", "pending"}, {"explain", "--task", "archived"}}},
	{"jobs", [][]string{{"jobs"}, {"jobs", "--limit", "api"}, {"jobs", "--max", "1"}, {"jobs", "--after", behindOneThatIsGone}}},
	{"retry", [][]string{{"retry", "--archived", "--failed"}, {"retry", "archived"}}},
	{"release", [][]string{{"release", "--all"}}},
	{"check", [][]string{{"check", "FILE"}}},
	{inFlight, [][]string{{inFlight, "crm"}}},
}

// behindOneThatIsGone is a cursor in a list of jobs.
var behindOneThatIsGone = base64.RawURLEncoding.EncodeToString([]byte(`{"at": {"q": "default", "s": "retry"}, "last": {"ID": "gone", "Score": 1}}`))

// newFleetState is a Redis with limiters, and with a parked, a failed, an archived and
// a pending job, and a function that brings all that back.
func newFleetState(t *testing.T) (s *site, restore func()) {
	s = newSite(t)
	w := s.workers(`
limits: { api: { rate: 1/1h } }
jobs: { "x:api": { limits: [api], hold: 0, permits: header.cost } }
`)
	stop := w.start(func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "x:fails" {
			return fmt.Errorf("no luck")
		}
		return nil
	})
	for _, id := range []string{"first", "parked"} {
		_, err := w.queue.Enqueue(asynq.NewTaskWithHeaders("x:api", nil, map[string]string{"cost": "1"}), asynq.TaskID(id))
		s.check(err)
		w.awaitStarts(1)
	}
	w.awaitExplained("parked", "parked")
	w.enqueue("x:fails", "failed")
	w.awaitExplained("failed", "retry")
	w.enqueue("x:fails", "archived", asynq.MaxRetry(0))
	w.awaitExplained("archived", "archived")
	stop()
	w.enqueue("x:late", "pending")
	s.check(s.rdb.Eval(t.Context(), `-- more archived jobs than a page has
for i = 1, ARGV[1] do
  local id = "archived" .. i
  redis.call("HSET", "asynq:{default}:t:" .. id, "state", "archived", "msg", "\10\1x\26" .. string.char(#id) .. id .. "\34\7default\40\25")
  redis.call("ZADD", "asynq:{default}:archived", 1e9 + i, id)
end
return 1`, nil, jobview.MaxJobs+1).Err())
	pinned := s.limiter("pinned", perHour(5), 1)
	s.done("pin", "pinned")
	s.check(pinned.Pause(t.Context(), time.Hour))
	s.limiter("each", throttle.Rate{Type: throttle.PerClient, Permits: 5, Interval: time.Hour}, 1)
	s.check(s.rdb.HSet(t.Context(), "jobthrottle:worker:w1", "version", "1").Err())
	s.check(s.rdb.ZAdd(t.Context(), "jobthrottle:workers", redis.Z{Score: 1e13, Member: "w1"}).Err())
	fleet := s.dump()
	return s, func() {
		t.Helper()
		s.check(s.rdb.FlushAll(t.Context()).Err())
		s.check(s.rdb.ScriptFlush(t.Context()).Err())
		fleet()
	}
}

// dump returns a function that brings back all keys that Redis has now.
func (s *site) dump() (restore func()) {
	dumped, lasts := map[string]string{}, map[string]time.Duration{}
	for _, key := range s.rdb.Keys(s.Context(), "*").Val() {
		dumped[key], lasts[key] = s.rdb.Dump(s.Context(), key).Val(), max(s.rdb.PTTL(s.Context(), key).Val(), 0)
	}
	return func() {
		s.Helper()
		_, err := s.rdb.Pipelined(s.Context(), func(p redis.Pipeliner) error {
			for key, text := range dumped {
				p.Restore(s.Context(), key, lasts[key], text)
			}
			return nil
		})
		s.check(err)
	}
}

// newSlots returns a function that brings a limit in flight with one holder into Redis, which is
// left empty.
func (s *site) newSlots() (restore func()) {
	s.Helper()
	s.check(s.rdb.FlushAll(s.Context()).Err())
	f, err := s.client.InFlight("crm", throttle.Slots{Limit: 2, Lease: time.Hour})
	s.check(err)
	lease, err := f.Acquire(s.Context(), "default/a")
	s.check(err)
	restore = s.dump()
	s.check(lease.Release(s.Context()))
	return restore
}

// rightsOf reads the rights of each verb from docs/redis.md.
func rightsOf(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	rights := map[string][]string{}
	quoted := regexp.MustCompile("`([^`]+)`")
	_, table, _ := strings.Cut(string(text), "| `throttle` | rights |")
	for line := range strings.Lines(table) {
		if line = strings.TrimSpace(line); line == "" {
			if len(rights) == 0 {
				continue
			}
			break
		}
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
		if len(cells) != 4 || strings.HasPrefix(cells[1], " ---") {
			continue
		}
		var words []string
		for _, m := range quoted.FindAllStringSubmatch(cells[2], -1) {
			words = append(words, strings.Fields(strings.ReplaceAll(m[1], "\x00", "|"))...)
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			rights[m[1]] = words
		}
	}
	return rights
}

// as runs the command as a user with these rights.
func (s *site) as(rules []string, args []string) outcome {
	s.Helper()
	set := []any{"ACL", "SETUSER", "operator", "reset", "on", ">secret"}
	for _, r := range rules {
		set = append(set, r)
		for _, other := range []string{"each", "pinned", "new", "crm"} { // the page has the limit api
			if strings.HasPrefix(r, "~") && strings.Contains(r, "api") {
				set = append(set, strings.ReplaceAll(r, "api", other))
			}
		}
	}
	s.check(s.rdb.Do(s.Context(), set...).Err())
	return runCommand(s.Context(), append(slices.Clone(args), "--redis", "redis://operator@"+s.addr)...)
}

// refused is what Redis says of a missing right.
var refused = regexp.MustCompile(`NOPERM|The user executing the script can't|EXECABORT`)

// TestRightsOfVerbs: each verb does its work with exactly the rights that docs/redis.md
// lists for it. With one of them less, it fails with one line that says what Redis
// refused and where the rights are listed; and each is needed for some call.
func TestRightsOfVerbs(t *testing.T) {
	t.Setenv("REDIS_PASSWORD", "secret")
	s, restore := newFleetState(t)
	slots := s.newSlots()
	documented := rightsOf(t)
	file := configFile(t, `{"type":"x:api","headers":{"cost":"3"}}`)
	config := configFile(t, "limits: { pinned: { rate: 10/1h } }\njobs: { \"x:api\": { limits: [pinned], permits: header.cost } }\n")
	runs := 0
	quiet := []string{"+publish", "&jobthrottle:changes"} // scripts do without: workers hear of the change later
	for _, op := range operations {
		t.Run(op.verb, func(t *testing.T) {
			rules := documented[op.verb]
			if len(rules) == 0 {
				t.Fatalf("docs/redis.md lists no rights of %s", op.verb)
			}
			needed := map[string]bool{}
			for _, call := range op.calls {
				if op.verb == "check" {
					call = []string{"check", file, "--config", config}
				}
				bringBack := func() {
					restore()
					if op.verb == inFlight {
						slots()
					}
				}
				bringBack()
				runs++
				if got := s.as(rules, call); got.status != cli.Done {
					t.Errorf("%q with all its rights: %+v", call, got)
					continue
				}
				for _, without := range rules {
					bringBack()
					runs++
					got := s.as(slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == without }), call)
					if got.status == cli.Done {
						if refused.MatchString(got.stderr) {
							needed[without] = true // it said what it could not do, and did the rest
						}
						continue
					}
					needed[without] = true
					if got.status != cli.Failed || strings.Count(got.stderr, "\n") != 1 || !refused.MatchString(got.stderr) || !strings.Contains(got.stderr, "docs/redis.md") {
						t.Errorf("%q without %s: %+v, want one line that says so and where the rights are listed", call, without, got)
					}
				}
			}
			for _, right := range rules {
				if !needed[right] && !slices.Contains(quiet, right) {
					t.Errorf("%s works without %s, which docs/redis.md lists", op.verb, right)
				}
			}
		})
	}
	t.Logf("%d runs of %d verbs", runs, len(operations))
	for verb := range documented {
		if !slices.ContainsFunc(operations, func(op operation) bool { return op.verb == verb }) {
			t.Errorf("docs/redis.md lists rights of %q, which is no verb", verb)
		}
	}
}
