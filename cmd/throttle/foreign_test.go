package main

import (
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/cli"
)

// What is in Redis and is no limiter is neither deleted nor written to.
func TestForeignKeys(t *testing.T) {
	s := newSite(t)
	s.check(s.rdb.LPush(t.Context(), "asynq:{default}:pending", "a").Err())
	s.check(s.rdb.LPush(t.Context(), "list", "a").Err())
	s.check(s.rdb.Set(t.Context(), "session:1", "a", 0).Err())
	s.check(s.rdb.HSet(t.Context(), "user:7", "name", "Ann").Err())
	s.check(s.rdb.HSet(t.Context(), "{jobthrottle:parked}:x", "name", "Ann").Err())
	was := map[string]string{}
	for _, key := range s.rdb.Keys(t.Context(), "*").Val() {
		was[key] = s.rdb.Dump(t.Context(), key).Val()
	}
	for _, name := range []string{"asynq:{default}:pending", "{jobthrottle:parked}:x", "jobthrottle:x"} {
		for _, verb := range [][]string{
			{"set", name, "5/1s", "--create"}, {"delete", name, "--yes"}, {"show", name}, {"pause", name, "1s"}, {"resume", name}, {"pin", name}, {"unpin", name},
		} {
			s.fails(cli.Usage, verb, []string{name, "keys of its own"})
		}
	}
	s.fails(cli.Usage, []string{"set", "asynq", "5/1s", "--create", "--value", "queues"}, []string{"asynq:queues", "keys of its own"})
	for _, name := range []string{"list", "session:1", "user:7"} {
		for _, verb := range [][]string{{"delete", name, "--yes"}, {"delete", name}, {"set", name, "5/1s", "--create"}, {"set", name, "5/1s"}} {
			s.fails(cli.Failed, verb, []string{name, "not a limiter", "redis-cli"})
		}
		for _, verb := range [][]string{{"show", name}, {"pause", name, "1s"}, {"pin", name}} {
			if got := s.run(verb...); got.status != cli.Failed {
				t.Errorf("%v: %+v", verb, got)
			}
		}
	}
	s.fails(cli.Failed, []string{"delete", "user", "--value", "7", "--yes"}, []string{"user:7", "not a limiter"})
	now := s.rdb.Keys(t.Context(), "*").Val()
	for _, key := range now {
		if s.rdb.Dump(t.Context(), key).Val() != was[key] {
			t.Errorf("%q was changed, or is new", key)
		}
	}
	if len(now) != len(was) {
		t.Errorf("%d keys of %d are left", len(now), len(was))
	}
}
