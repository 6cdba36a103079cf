package throttle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// listAll lists by name what matches.
func listAll(b *bench, f *Fleet, match string) []Listed {
	b.Helper()
	var found []Listed
	for l, err := range f.Limiters(b.Context(), match) {
		check(b, err)
		found = append(found, l)
	}
	slices.SortFunc(found, func(x, y Listed) int { return strings.Compare(x.Name, y.Name) })
	return found
}

func TestFleetLists(t *testing.T) {
	onRealRedis(t, func(b *bench) {
		c, ctx := b.client(), b.Context()
		rates := map[string]Rate{
			"a":       {Permits: 100, Interval: time.Second},
			"b:1":     {Permits: 5, Interval: time.Minute, Type: PerClient, Guard: -1, Smooth: true},
			"b:2":     {Permits: 1, Interval: time.Hour, Window: Calendar, Offset: time.Minute, KeepAlive: 2 * time.Hour, Guard: 7500 * time.Microsecond},
			"{tag}:x": {Permits: MaxPermits, Interval: time.Millisecond},
		}
		for name, r := range rates {
			l, err := c.Limiter(name)
			check(b, err)
			check(b, l.SetRate(ctx, r))
			b.expectTry(l, 1, true)
		}
		l, err := c.Limiter("a")
		check(b, err)
		check(b, l.Pin(ctx))
		check(b, l.Pause(ctx, time.Hour))
		// A Redisson client's limiter, and hashes that are not limiters.
		check(b, b.rdb.HSet(ctx, "java", "rate", 10, "interval", 2000, "type", 0, "keepAliveTime", 0).Err())
		check(b, b.rdb.HSet(ctx, "tariff", "rate", "1.5", "interval", "month").Err())
		check(b, b.rdb.HSet(ctx, "empty", "rate", 0, "interval", 1000).Err())
		check(b, b.rdb.HSet(ctx, "user:1", "name", "x").Err())
		check(b, b.rdb.Set(ctx, "text", "rate", 0).Err())

		f := NewFleet(b.rdb)
		found := listAll(b, f, "")
		names := make([]string, len(found))
		for i, l := range found {
			names[i] = l.Name
		}
		if want := []string{"a", "b:1", "b:2", "java", "{tag}:x"}; !slices.Equal(names, want) {
			b.Fatalf("listed %q, want %q", names, want)
		}
		for _, got := range found {
			l, err := c.Limiter(got.Name)
			check(b, err)
			u, err := l.Inspect(ctx)
			check(b, err)
			if got.Rate != u.Rate || got.Pinned != u.Pinned || (got.Paused > 0) != (u.Paused > 0) {
				b.Errorf("listed %#v, inspected %#v", got, u)
			}
		}
		if p := found[0].Paused; p <= 59*time.Minute || p > time.Hour || !found[0].Pinned {
			b.Errorf("a is listed as paused for %v, pinned %v", p, found[0].Pinned)
		}
		if got := listAll(b, f, "b:*"); len(got) != 2 {
			b.Errorf("b:* matches %d limiters, want 2", len(got))
		}
		f.Skip = func(key string) bool { return strings.HasPrefix(key, "b:") }
		if got := listAll(b, f, ""); len(got) != 3 {
			b.Errorf("%d limiters that are not to be skipped, want 3", len(got))
		}
		f.Skip = nil
		if got := listAll(b, f, "z*"); len(got) != 0 {
			b.Errorf("z* matches %d limiters, want none", len(got))
		}
	})
}

// TestFleetListsEarlyEnd: the loop may end when it has seen enough, and ends with what Redis says.
func TestFleetListsEarlyEnd(t *testing.T) {
	onRealRedis(t, func(b *bench) {
		for i := range 3 {
			check(b, b.rdb.HSet(b.Context(), fmt.Sprint("l", i), "rate", 1, "interval", 1000, "type", 0).Err())
		}
		seen := 0
		for range NewFleet(b.rdb).Limiters(b.Context(), "") {
			seen++
			break
		}
		if seen != 1 {
			b.Errorf("saw %d limiters after the first, want none", seen-1)
		}
		ended, cancel := context.WithCancel(b.Context())
		cancel()
		errs := 0
		for _, err := range NewFleet(b.rdb).Limiters(ended, "") {
			if err == nil {
				b.Error("a limiter, although the context had ended")
			}
			errs++
		}
		if errs != 1 {
			b.Errorf("%d errors, want one", errs)
		}
	})
}

func TestFleetInspects(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx := b.Context()
		mine, yours := b.client(), b.client()
		each, err := mine.Limiter("each")
		check(b, err)
		check(b, each.SetRate(ctx, perClient("10/1h")))
		theirs, err := yours.Limiter("each")
		check(b, err)
		all, err := mine.Limiter("all")
		check(b, err)
		check(b, all.SetRate(ctx, rate("10/1h")))
		b.expectTry(all, 4, true)
		idle, err := mine.Limiter("idle")
		check(b, err)
		check(b, idle.SetRate(ctx, perClient("3/1s")))
		b.expectTry(each, 3, true)
		b.expectTry(theirs, 10, true)

		f := NewFleet(b.rdb)
		found, err := f.Inspect(ctx, "each", "missing", "all", "bad{name", "idle")
		check(b, err)
		if len(found) != 3 || found[0].Name != "each" || found[1].Name != "all" || found[2].Name != "idle" {
			b.Fatalf("found %+v, want each, all and idle", found)
		}
		if u := found[0]; u.Used != 13 || u.Available != 7 || u.NextFree != 0 || len(u.PerClient) != 2 {
			b.Errorf("each: %+v, want 13 used of 2 x 10", u)
		}
		used := map[string]int64{}
		for _, c := range found[0].PerClient {
			used[c.ID] = c.Used
			if full := c.ID == yours.ID(); (c.NextFree > 0) != full || c.Available != 10-c.Used {
				b.Errorf("client %+v", c)
			}
		}
		if used[mine.ID()] != 3 || used[yours.ID()] != 10 {
			b.Errorf("used by client: %v", used)
		}
		if u := found[1]; u.Used != 4 || u.Available != 6 || u.PerClient != nil {
			b.Errorf("all: %+v, want 4 used of 10", u)
		}
		if u := found[2]; u.Used != 0 || len(u.PerClient) != 0 || u.NextFree != 0 {
			b.Errorf("idle: %+v, want nothing used", u)
		}
	})
}

// TestFleetTrouble: what goes wrong between the lines is skipped or said, never a panic.
func TestFleetTrouble(t *testing.T) {
	server := redistest.New(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	b := &bench{T: t, rdb: rdb, begin: time.Now()}
	ctx := b.Context()
	l := b.limited(rate("10/1h"))
	f := NewFleet(b.rdb)
	if _, err := f.Inspect(ctx, l.Name()); err != nil {
		t.Fatal(err)
	}
	check(b, b.rdb.ScriptFlush(ctx).Err())
	if found, err := f.Inspect(ctx, l.Name()); err != nil || len(found) != 1 {
		t.Errorf("after SCRIPT FLUSH: %v, %v", found, err)
	}
	check(b, b.rdb.Set(ctx, "text", "x", 0).Err())
	check(b, b.rdb.HSet(ctx, "broken", "rate", 1, "interval", 1000).Err())
	check(b, b.rdb.Set(ctx, "{broken}:permits", "x", 0).Err())
	if found, err := f.Inspect(ctx, "text", "broken", l.Name()); err != nil || len(found) != 1 {
		t.Errorf("keys of other types: %v, %v", found, err)
	}
	if page, err := f.page(ctx, []string{"text", "gone", l.Name()}); err != nil || len(page) != 1 {
		t.Errorf("a page with keys that changed since: %v, %v", page, err)
	}
	server.Stop()
	if _, err := f.Inspect(ctx, l.Name()); err == nil || !strings.Contains(err.Error(), l.Name()) {
		t.Errorf("without Redis: error %v, want one that names %q", err, l.Name())
	}
	for _, err := range f.Limiters(ctx, "") {
		if err == nil {
			t.Error("a limiter without Redis")
		}
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": server.Addr}})
	defer ring.Close()
	for _, err := range NewFleet(ring).Limiters(ctx, "") {
		if err == nil || !strings.Contains(err.Error(), "Ring") {
			t.Errorf("a Ring: error %v", err)
		}
	}
}

// TestFleetOnCluster lists every master's limiters, and reads each where it is.
func TestFleetOnCluster(t *testing.T) {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.StartCluster(t)})
	defer rdb.Close()
	c, err := New(rdb, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var names []string
	for i := range 50 {
		name := fmt.Sprintf("l:%02d", i)
		l, err := c.Limiter(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.SetRate(t.Context(), rate("10/1h")); err != nil {
			t.Fatal(err)
		}
		if ok, err := l.TryAcquire(t.Context(), 2); !ok || err != nil {
			t.Fatal(ok, err)
		}
		names = append(names, name)
	}
	f := NewFleet(rdb)
	b := &bench{T: t}
	if found := listAll(b, f, "l:*"); len(found) != 50 {
		t.Errorf("%d limiters listed, want 50", len(found))
	}
	found, err := f.Inspect(t.Context(), names...)
	if err != nil || len(found) != 50 {
		t.Fatalf("%d limiters inspected, error %v, want 50", len(found), err)
	}
	for i, u := range found {
		if u.Name != names[i] || u.Used != 2 {
			t.Errorf("%q: %d used, want %q and 2", u.Name, u.Used, names[i])
		}
	}
}
