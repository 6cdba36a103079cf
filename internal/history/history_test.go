package history_test

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/history"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

func onBoth(t *testing.T, test func(*testing.T, *redis.Client)) {
	for name, addr := range map[string]func(*testing.T) string{
		"redis":     func(t *testing.T) string { return redistest.Start(t) },
		"miniredis": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redis.NewClient(&redis.Options{Addr: addr(t)})
			t.Cleanup(func() { rdb.Close() })
			test(t, rdb)
		})
	}
}

func add(t *testing.T, rdb *redis.Client, counts map[string]history.Counts) {
	t.Helper()
	if _, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		history.Add(t.Context(), p, counts)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// sums is what the fleet did in the hour, by limit.
func sums(t *testing.T, r *history.Reader) map[string]history.Counts {
	t.Helper()
	past, err := r.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(past.Spans) != history.Buckets+1 || past.At.Before(past.Begins(history.Buckets)) || past.At.Sub(past.Begins(history.Buckets)) > history.Span {
		t.Fatalf("%d spans, the last begins at %v, now is %v", len(past.Spans), past.Begins(history.Buckets), past.At)
	}
	all := map[string]history.Counts{}
	for _, span := range past.Spans {
		for limit, c := range span {
			s := all[limit]
			s.Started, s.Failed, s.Refused, s.Waited = s.Started+c.Started, s.Failed+c.Failed, s.Refused+c.Refused, s.Waited+c.Waited
			s.Longest = max(s.Longest, c.Longest)
			all[limit] = s
		}
	}
	return all
}

// TestSums: what processes add is summed, and the longest wait kept, also for a
// reader that remembers.
func TestSums(t *testing.T) {
	onBoth(t, func(t *testing.T, rdb *redis.Client) {
		r := history.NewReader(rdb)
		add(t, rdb, map[string]history.Counts{"": {}, "idle": {}})
		if n := rdb.DBSize(t.Context()).Val(); n != 0 {
			t.Fatalf("nothing happened, and there are %d keys", n)
		}
		add(t, rdb, map[string]history.Counts{"": {Started: 3, Waited: 6 * time.Second, Longest: 5 * time.Second}, "api": {Started: 2, Failed: 1}})
		if got := sums(t, r)[""].Started; got != 3 {
			t.Errorf("%d started, want 3", got)
		}
		add(t, rdb, map[string]history.Counts{"": {Started: 1, Waited: time.Second, Longest: time.Second, Refused: 1}, "a:b": {Started: 1}})
		want := map[string]history.Counts{
			"": {Started: 4, Waited: 7 * time.Second, Longest: 5 * time.Second, Refused: 1}, "api": {Started: 2, Failed: 1}, "a:b": {Started: 1},
		}
		if got := sums(t, r); !maps.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// TestBounded: however many limits there are, the size of a bucket is bounded, nothing is left
// out of the sum, and the bucket expires after little more than an hour.
func TestBounded(t *testing.T) {
	onBoth(t, func(t *testing.T, rdb *redis.Client) {
		const limits = 1000
		for i := range limits {
			add(t, rdb, map[string]history.Counts{fmt.Sprint("limit", i): {Started: 1, Failed: 1, Refused: 1, Waited: time.Second, Longest: time.Second}})
		}
		add(t, rdb, map[string]history.Counts{"": {Failed: 1}})
		got := sums(t, history.NewReader(rdb))
		if got[""].Failed != 1 {
			t.Errorf("all jobs: %+v, want one that failed", got[""])
		}
		started := int64(0)
		for _, c := range got {
			started += c.Started
		}
		if started != limits || got[history.Other].Started == 0 {
			t.Errorf("%d started, want %d, some of them in %q", started, limits, history.Other)
		}
		for _, key := range rdb.Keys(t.Context(), "*").Val() {
			fields, left := rdb.HLen(t.Context(), key).Val(), rdb.TTL(t.Context(), key).Val()
			if fields > 5*(history.MaxLimits+2) || left < time.Hour || left > time.Hour+2*time.Minute || !strings.HasPrefix(key, "{jobthrottle:history}:") {
				t.Errorf("%s has %d fields, and is kept for %v", key, fields, left)
			}
		}
	})
}

// TestOfStrangers: whatever somebody writes there, reading and adding goes on.
func TestOfStrangers(t *testing.T) {
	onBoth(t, func(t *testing.T, rdb *redis.Client) {
		now := rdb.Time(t.Context()).Val().Unix() / int64(history.Span/time.Second)
		for n := now - 1; n <= now+1; n++ {
			if err := rdb.HSet(t.Context(), "{jobthrottle:history}:"+strconv.FormatInt(n, 10), "s:", "1e300", "x", "y", "f:api", "-5", "m:api", "99999999999999999999", "w:api", "nan").Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := rdb.Set(t.Context(), "{jobthrottle:history}:"+strconv.FormatInt(now-5, 10), "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		add(t, rdb, map[string]history.Counts{"": {Started: 2}, "api": {Failed: 1, Longest: time.Second, Waited: time.Second}})
		got := sums(t, history.NewReader(rdb))
		if got[""].Started != 2 || got["api"].Failed != 1 || got["api"].Longest != time.Second || got["api"].Waited != time.Second {
			t.Errorf("%+v", got)
		}
	})
}
