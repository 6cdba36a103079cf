package operate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

func TestInspects(t *testing.T) {
	forEachRedis(t, testInspects)
}

func testInspects(s *site) {
	ctx := s.Context()
	mine, yours := s.client(), s.client()
	s.limited(mine, "each", perClient(10), 3)
	s.use(s.limiter(yours, "each"), 10)
	s.limited(mine, "all", perHour(10), 4)
	s.limited(mine, "idle", perClient(3), 0)
	f := s.fleet()

	found, err := f.Inspect(ctx, "each", "missing", "all", "bad{name", "idle")
	s.check(err)
	if len(found) != 3 || found[0].Name != "each" || found[1].Name != "all" || found[2].Name != "idle" {
		s.Fatalf("found %+v, want each, all and idle", found)
	}
	if u := found[0]; u.Used != 13 || u.Available != 7 || u.NextFree != 0 || len(u.PerClient) != 2 {
		s.Errorf("each: %+v, want 13 used of 2 x 10", u)
	}
	used := map[string]int64{}
	for _, c := range found[0].PerClient {
		used[c.ID] = c.Used
		if full := c.ID == yours.ID(); (c.NextFree > 0) != full || c.Available != 10-c.Used {
			s.Errorf("client %+v", c)
		}
	}
	if used[mine.ID()] != 3 || used[yours.ID()] != 10 {
		s.Errorf("used by client: %v", used)
	}
	if u := found[1]; u.Used != 4 || u.Available != 6 || u.PerClient != nil {
		s.Errorf("all: %+v, want 4 used of 10", u)
	}
	if u := found[2]; u.Used != 0 || len(u.PerClient) != 0 || u.NextFree != 0 {
		s.Errorf("idle: %+v, want nothing used", u)
	}

	for _, tt := range []struct {
		client, name    string
		used, available int64
		clients         int
	}{
		{mine.ID(), "each", 3, 7, 2},
		{yours.ID(), "each", 10, 0, 2},
		{"nobody", "each", 0, 10, 2},
		{yours.ID(), "all", 4, 6, 0},
	} {
		u, err := f.InspectClient(ctx, tt.client, tt.name)
		if err != nil || u.Used != tt.used || u.Available != tt.available || len(u.Clients) != tt.clients || (u.NextFree > 0) != (tt.available == 0) {
			s.Errorf("%s of %q: %+v, %v; want %d used, %d available, %d clients", tt.name, tt.client, u, err, tt.used, tt.available, tt.clients)
		}
	}
}

// TestInspectFor: one call tells a client how it stands with its own quota, and with limiters of all.
func TestInspectFor(t *testing.T) {
	s := onRedis(t)
	ctx, f, mine, yours := t.Context(), s.fleet(), s.client(), s.client()
	each := perHour(10)
	each.Type = throttle.PerClient
	s.limited(mine, "each", each, 3)
	s.use(s.limiter(yours, "each"), 10)
	s.limited(mine, "all", perHour(10), 4)
	for _, tt := range []struct {
		client     string
		each, free int64
	}{{mine.ID(), 3, 7}, {yours.ID(), 10, 0}, {"nobody", 0, 10}} {
		found, err := f.InspectFor(ctx, tt.client, "each", "all", "missing")
		if err != nil || len(found) != 2 || found[0].Used != tt.each || found[0].Available != tt.free || (found[0].NextFree > 0) != (tt.free == 0) || found[0].PerClient != nil {
			t.Errorf("of %q: %+v, %v; want %d used", tt.client, found, err, tt.each)
		} else if found[1].Name != "all" || found[1].Used != 4 || len(found[0].Clients)+len(found[1].Clients) > 0 {
			t.Errorf("of all: %+v", found[1])
		}
	}
}

// TestInspectLater: Later is when more than Soon can be taken, whatever else is in the log. It is not known of smooth limiters.
func TestInspectLater(t *testing.T) {
	forEachRedis(t, func(s *site) {
		ctx, f, c := s.Context(), s.fleet(), s.client()
		rate := throttle.Rate{Permits: 10, Interval: 2 * time.Second, Guard: -1}
		l := s.limited(c, "api", rate, 4)
		<-time.After(time.Second)
		s.use(l, 5)
		smooth := rate
		smooth.Smooth = true
		s.limited(c, "smooth", smooth, 1)
		s.limited(c, "idle", rate, 0)
		found, err := f.InspectFor(ctx, c.ID(), "api", "smooth", "idle")
		s.check(err)
		// One is free, four are in about a second, and nine in about two.
		if u := found[0]; u.Soon != 1 || u.Later < 600*time.Millisecond || u.Later > time.Second {
			s.Errorf("%d soon, more in %v; want 1, and about a second", u.Soon, u.Later)
		}
		if found[1].Later != 0 || found[2].Soon != 10 || found[2].Later != 0 {
			s.Errorf("smooth %+v, idle %+v: want nothing later", found[1], found[2])
		}
		<-time.After(850 * time.Millisecond)
		found, err = f.InspectFor(ctx, c.ID(), "api")
		s.check(err)
		if u := found[0]; u.Soon != 5 || u.Later < 600*time.Millisecond || u.Later > 1200*time.Millisecond {
			s.Errorf("%d soon, more in %v; want 5, and about a second", u.Soon, u.Later)
		}
	})
}

// Reservations and pauses show, and reading them changes nothing.
func TestInspectsPlacesAndPauses(t *testing.T) {
	s := onRedis(t)
	ctx, f := t.Context(), s.fleet()
	l := s.limited(s.client(), "api", perHour(10), 10)
	reservation, err := l.Reserve(ctx, 3, 2*time.Hour)
	s.check(err)
	found, err := f.Inspect(ctx, "api")
	s.check(err)
	if !reservation.OK() || len(found) != 1 || found[0].Reserved != 3 {
		t.Errorf("%+v, want 3 reserved", found)
	}
	reservation.Cancel()
	s.check(l.Pause(ctx, time.Minute))
	before := s.rdb.HGetAll(ctx, "api").Val()
	found, err = f.Inspect(ctx, "api")
	s.check(err)
	if len(found) != 1 {
		t.Fatalf("found %+v", found)
	}
	u := found[0]
	if u.Used != 10 || u.Available != 0 || u.NextFree < 59*time.Minute || u.Paused <= 59*time.Second || u.Paused > time.Minute || u.Pinned {
		t.Errorf("%+v, want 10 used and a pause of a minute", u)
	}
	for field, value := range s.rdb.HGetAll(ctx, "api").Val() {
		if before[field] != value {
			t.Errorf("%s was %q, is %q", field, before[field], value)
		}
	}
}

// What goes wrong between the lines is skipped or reported.
func TestInspectTrouble(t *testing.T) {
	server := redistest.New(t)
	s := at(t, server.Addr)
	ctx, f := t.Context(), s.fleet()
	s.limited(s.client(), "api", perHour(10), 0)
	s.check(s.rdb.Set(ctx, "text", "x", 0).Err())
	s.check(s.rdb.HSet(ctx, "broken", "rate", 1, "interval", 1000).Err())
	s.check(s.rdb.Set(ctx, "{broken}:permits", "x", 0).Err())
	for _, first := range []string{"text", "missing", "api"} { // the call that sends the whole script
		s.check(s.rdb.ScriptFlush(ctx).Err())
		found, err := f.Inspect(ctx, first, "text", "broken", "api")
		s.expectError("Inspect", err, throttle.ErrWrongType, "text")
		if len(found) == 0 || found[len(found)-1].Name != "api" {
			t.Errorf("after SCRIPT FLUSH, with %q first: %v, %v", first, found, err)
		}
	}
	found, err := f.Inspect(ctx, "text", "missing", "broken", "api")
	if spoilt, ok := errors.AsType[*operate.SpoiltError](err); !ok || len(spoilt.Limiters) != 2 || spoilt.Limiters[0].Limiter != "text" || spoilt.Limiters[1].Limiter != "broken" || len(found) != 1 {
		t.Errorf("keys of other types: %v, %v; want an error that names text and broken", found, err)
	}
	inspect := func(name string) error {
		_, err := f.InspectClient(ctx, "id", name)
		return err
	}
	s.expectError("InspectClient", inspect("missing"), throttle.ErrNotInitialized, "missing")
	s.expectError("InspectClient", inspect("text"), throttle.ErrWrongType, "text")
	s.expectError("InspectClient", inspect("a{b"), throttle.ErrInvalidName, "a{b")
	s.check(s.rdb.HSet(ctx, "nonsense", "rate", "x", "interval", 1000).Err())
	s.expectError("InspectClient", inspect("nonsense"), throttle.ErrInvalidRate, "nonsense")
	_, err = f.Inspect(ctx, "api", "nonsense")
	s.expectError("Inspect", err, throttle.ErrInvalidRate, "nonsense")

	server.Stop()
	if err := inspect("api"); err == nil || !strings.Contains(err.Error(), "api") {
		t.Errorf("without Redis: error %v, want one that names it", err)
	}
	if _, err := f.Inspect(ctx, "api"); err == nil || !strings.Contains(err.Error(), "api") {
		t.Errorf("without Redis: error %v, want one that names it", err)
	}
}

// A user who may run scripts needs no permission to load them.
func TestInspectsWithoutLoading(t *testing.T) {
	s := onRedis(t)
	ctx := t.Context()
	s.check(s.rdb.Do(ctx, "ACL", "SETUSER", "operator", "on", "nopass", "~*", "+@all", "-script").Err())
	rdb := redis.NewClient(&redis.Options{Addr: s.rdb.Options().Addr, Username: "operator", Password: "any"})
	defer rdb.Close()
	c := s.client()
	for _, name := range []string{"a", "b", "c"} {
		s.limited(c, name, perClient(10), 1)
	}
	s.check(s.rdb.ScriptFlush(ctx).Err())
	if found, err := operate.NewFleet(rdb).Inspect(ctx, "a", "b", "c"); err != nil || len(found) != 3 || found[2].Used != 1 {
		t.Errorf("%+v, %v", found, err)
	}
}

// A limiter that somebody has spoilt is named, and hides no other.
func TestInspectsBesideSpoilt(t *testing.T) {
	s := onRedis(t)
	ctx, f := t.Context(), s.fleet()
	c := s.client()
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		s.limited(c, name, perClient(10), 2)
	}
	s.check(s.rdb.HSet(ctx, "b", "offset", "1e300").Err())
	s.check(s.rdb.HSet(ctx, "d", "interval", "never").Err())
	found, err := f.Inspect(ctx, names...)
	spoilt, ok := errors.AsType[*operate.SpoiltError](err)
	if !ok || !errors.Is(err, throttle.ErrInvalidRate) || len(spoilt.Limiters) != 2 || spoilt.Limiters[0].Limiter != "b" || spoilt.Limiters[1].Limiter != "d" {
		t.Fatalf("error %v, want one that names b and d", err)
	}
	if len(found) != 3 || found[0].Name != "a" || found[1].Name != "c" || found[2].Name != "e" {
		t.Fatalf("found %+v, want a, c and e", found)
	}
	for _, u := range found {
		if u.Used != 2 || len(u.PerClient) != 1 {
			t.Errorf("%+v, want 2 used by one client", u)
		}
	}
}

// A list has what Inspect would have, field by field, without reading the log.
func TestListsSpoilt(t *testing.T) {
	s := onRedis(t)
	ctx, f, c := t.Context(), s.fleet(), s.client()
	for _, foreign := range []struct{ field, value string }{
		{"rate", "x"}, {"rate", "0"}, {"rate", "1e10"}, {"rate", "1.5"}, {"rate", ""}, {"rate", "nan"}, {"rate", "inf"}, {"rate", "-1"},
		{"interval", "0"}, {"interval", "1e300"}, {"interval", "long"}, {"interval", "3600000"}, {"interval", "7"},
		{"type", "2"}, {"type", "x"}, {"keepAliveTime", "-1"}, {"keepAliveTime", "1e20"}, {"guard", "-5"}, {"guard", "1e300"}, {"guard", "3600000001"},
		{"guard", "900000000"}, {"smooth", "yes"}, {"window", "2"}, {"window", "1"}, {"offset", "1e300"}, {"offset", "3600000000"}, {"offset", "-1"},
		{"pause", "1e300"}, {"pause", "x"}, {"rate", " 12 "}, {"rate", "1e3"}, {"rate", "0x10"}, {"epoch", "x"},
	} {
		name := foreign.field + "=" + foreign.value
		for _, n := range []string{name, "beside " + name} {
			s.limited(c, n, perHour(10), 0)
		}
		s.check(s.rdb.HSet(ctx, name, foreign.field, foreign.value).Err())
		_, inspected := f.InspectClient(ctx, "id", name)
		found := listAll(t, f, "*"+name)
		if len(found) != 2 || found[0].Err != nil || found[1].Name != name {
			t.Errorf("%s: listed %+v, want both", name, found)
			continue
		}
		if got := found[1].Err; (got == nil) != (inspected == nil) || got != nil && got.Error() != inspected.Error() {
			t.Errorf("%s: listed with error %v, inspected with %v", name, got, inspected)
		}
	}
}
