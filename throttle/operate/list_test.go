package operate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// listAll lists what matches, by name.
func listAll(t *testing.T, f *operate.Fleet, match string) []operate.Listed {
	t.Helper()
	var found []operate.Listed
	for l, err := range f.Limiters(t.Context(), match) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, l)
	}
	slices.SortFunc(found, func(x, y operate.Listed) int { return strings.Compare(x.Name, y.Name) })
	return found
}

func TestLists(t *testing.T) {
	s := onRedis(t)
	c, ctx, f := s.client(), t.Context(), s.fleet()
	rates := map[string]throttle.Rate{
		"a":       {Permits: 100, Interval: time.Second},
		"b:1":     {Permits: 5, Interval: time.Minute, Type: throttle.PerClient, Guard: -1, Smooth: true},
		"b:2":     {Permits: 1, Interval: time.Hour, Window: throttle.Calendar, Offset: time.Minute, KeepAlive: 2 * time.Hour, Guard: 7500 * time.Microsecond},
		"{tag}:x": {Permits: throttle.MaxPermits, Interval: time.Millisecond},
	}
	for name, r := range rates {
		s.limited(c, name, r, 1)
	}
	s.check(f.Pin(ctx, "a"))
	s.check(s.limiter(c, "a").Pause(ctx, time.Hour))
	// A Redisson client's limiter, and hashes that are not limiters.
	s.check(s.rdb.HSet(ctx, "java", "rate", 10, "interval", 2000, "type", 0, "keepAliveTime", 0).Err())
	s.check(s.rdb.HSet(ctx, "tariff", "rate", "1.5", "interval", "month").Err())
	s.check(s.rdb.HSet(ctx, "empty", "rate", 0, "interval", 1000).Err())
	s.check(s.rdb.HSet(ctx, "user:1", "name", "x").Err())
	s.check(s.rdb.Set(ctx, "text", "rate", 0).Err())

	found := listAll(t, f, "")
	names := make([]string, len(found))
	for i, l := range found {
		names[i] = l.Name
	}
	if want := []string{"a", "b:1", "b:2", "java", "{tag}:x"}; !slices.Equal(names, want) {
		t.Fatalf("listed %q, want %q", names, want)
	}
	for _, got := range found {
		u, err := f.InspectClient(ctx, c.ID(), got.Name)
		s.check(err)
		if got.Rate != u.Rate || got.Pinned != u.Pinned || (got.Paused > 0) != (u.Paused > 0) {
			t.Errorf("listed %#v, inspected %#v", got, u)
		}
		if own, err := s.limiter(c, got.Name).Config(ctx); err != nil || own != got.Rate {
			t.Errorf("listed %#v, configured %#v, %v", got.Rate, own, err)
		}
		if r, ok := rates[got.Name]; ok {
			if r.Guard == 0 {
				r.Guard = r.DefaultGuard()
			}
			if got.Rate != r {
				t.Errorf("%q is listed with %#v, was given %#v", got.Name, got.Rate, r)
			}
		}
	}
	if p := found[0].Paused; p <= 59*time.Minute || p > time.Hour || !found[0].Pinned {
		t.Errorf("a is listed as paused for %v, pinned %v", p, found[0].Pinned)
	}
	if got := listAll(t, f, "b:*"); len(got) != 2 {
		t.Errorf("b:* matches %d limiters, want 2", len(got))
	}
	if got := listAll(t, f, "z*"); len(got) != 0 {
		t.Errorf("z* matches %d limiters, want none", len(got))
	}
	f.Skip = func(key string) bool { return strings.HasPrefix(key, "b:") }
	if got := listAll(t, f, ""); len(got) != 3 {
		t.Errorf("%d limiters that are not to be skipped, want 3", len(got))
	}
}

// The loop may end when it has seen enough, and ends with what Redis says.
func TestListEndsEarly(t *testing.T) {
	s := onRedis(t)
	for i := range 3 {
		s.check(s.rdb.HSet(t.Context(), fmt.Sprint("l", i), "rate", 1, "interval", 1000, "type", 0).Err())
	}
	seen := 0
	for range s.fleet().Limiters(t.Context(), "") {
		seen++
		break
	}
	if seen != 1 {
		t.Errorf("saw %d limiters after the first, want none", seen-1)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	expectOneError(t, s.fleet().Limiters(ended, ""), "canceled")
}

// expectOneError checks that a list is one error that says so.
func expectOneError(t *testing.T, list func(func(operate.Listed, error) bool), says string) {
	t.Helper()
	errs := 0
	for l, err := range list {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v, %v: want an error that says %q", l, err, says)
		}
		errs++
	}
	if errs != 1 {
		t.Errorf("%d errors, want one", errs)
	}
}

// Keys that have gone or changed since they were found are left out.
func TestListsWhatChanges(t *testing.T) {
	s := onRedis(t)
	ctx := t.Context()
	for _, name := range []string{"stays", "goes", "turns"} {
		s.limited(s.client(), name, perHour(10), 0)
	}
	changed := false
	f := s.fleet()
	f.Skip = func(string) bool { // the keys are found, and not yet read
		if !changed {
			changed = true
			s.check(s.rdb.Del(ctx, "goes", "turns").Err())
			s.check(s.rdb.Set(ctx, "turns", "x", 0).Err())
		}
		return false
	}
	if got := listAll(t, f, ""); len(got) != 1 || got[0].Name != "stays" || !changed {
		t.Errorf("listed %+v, want what stays", got)
	}
}

func TestCannotList(t *testing.T) {
	server := redistest.New(t)
	s := at(t, server.Addr)
	server.Stop()
	expectOneError(t, s.fleet().Limiters(t.Context(), ""), "list limiters")
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": server.Addr}})
	defer ring.Close()
	expectOneError(t, operate.NewFleet(ring).Limiters(t.Context(), ""), "Ring")
}
