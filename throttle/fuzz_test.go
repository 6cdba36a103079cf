package throttle

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Whatever Redis replies is read, or refused with the one error for it.
func FuzzDecodeBatch(f *testing.F) {
	for _, reply := range []string{
		"5 0 5 7 0 0 1 1 0 0", "5 0 5 7 1 3:1000:0:0:10:0:0:0:7:0 3 1000 10 0 0 0 0 1 0 3 20 0", "5 1 0", "5 2", "", "0", " ", "5 0", "5 1 9",
		"5 0 5 7 0 0 99999999999 1 0", "5 0 5 7 0 0 1 0 0 0", "5 0 5 7 0 0 1 1 -1 0", "99999999999999999999 0", "5 3", "5 0 5 7 0 0 0 4", "5 2 1",
	} {
		f.Add(reply, 1, 1)
	}
	f.Fuzz(func(t *testing.T, reply string, members, runs int) {
		members, runs = 1+abs(members)%4, abs(runs)%5
		r, err := decodeReply(reply, members, runs)
		if err != nil {
			if !errors.Is(err, script.ErrReply) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if r.Status == script.OK && (len(r.Epochs) != members || len(r.Runs) != runs) {
			t.Fatalf("%d epochs, %d runs", len(r.Epochs), len(r.Runs))
		}
		for _, run := range r.Runs {
			for _, g := range run.Grants {
				if g.Count < 1 || g.Offset < 0 {
					t.Fatalf("grant %+v", g)
				}
			}
			if run.Member < 0 || run.Member >= members {
				t.Fatalf("member %d of %d", run.Member, members)
			}
		}
	})
}

func FuzzDecodeUsage(f *testing.F) {
	for _, reply := range []string{"10 1000 0 0 10000 0 0 0 3 0 7 0 0 0", "", "1", "10 1000 2 0 0 0 0 0 0 0 0 0 0 0", "x 1"} {
		f.Add(reply, "client")
	}
	f.Fuzz(func(t *testing.T, figures, client string) {
		u, _, err := script.DecodeStanding[Rate]([]any{figures, client})
		if err != nil && !errors.Is(err, script.ErrReply) {
			t.Fatalf("error %v", err)
		}
		if err == nil && (len(u.Clients) != 1 || u.Clients[0] != client) {
			t.Fatalf("clients %q", u.Clients)
		}
	})
}

// A name is refused, or all its keys lie in one slot.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"a", "a{b}", "a{b}c{d}", "{}", "{", "}", "a}b{c}", "{{a}}", "a{}b{c}", "\x00", "é"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if err := checkName(name); err != nil {
			if !errors.Is(err, ErrInvalidName) || len(err.Error()) > 1000 {
				t.Fatalf("error %v", err)
			}
			return
		}
		want := slotOf(name)
		for _, key := range script.KeysOf(name, "0f1e-client") {
			if got := slotOf(key); got != want {
				t.Errorf("%q is hashed by %q, %q by %q", name, want, key, got)
			}
		}
	})
}

// slotOf is the part of a key that Redis Cluster hashes, by its specification.
func slotOf(key string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
			return key[open+1 : open+1+n]
		}
	}
	return key
}

// Whatever is in the log, Acquire grants or denies; a script never fails on it.
func FuzzMembers(f *testing.F) {
	for _, m := range []string{"", "\x00", "\x08", "\x10abc", "\x00\xff\xff\xff\xff", "\xff" + strings.Repeat("x", 259), ownMember(1, 1), "\x0212\x05\x00\x00\x00"} {
		f.Add([]byte(m), 0.0)
		f.Add([]byte(m), -1e9)
		f.Add([]byte(m), 1e15)
	}
	s := fakeServer(f)
	c, err := New(s.rdb, Options{})
	check(f, err)
	f.Cleanup(func() { c.Close() })
	f.Fuzz(func(t *testing.T, member []byte, offset float64) {
		ctx := t.Context()
		l, err := c.Limiter("fuzzed")
		check(t, err)
		s.pass(time.Millisecond)
		check(t, l.SetRate(ctx, Rate{Permits: 3, Interval: time.Second}))
		z := redis.Z{Score: float64(s.now(t))/1000 + offset, Member: string(member)}
		if z.Score != z.Score || s.rdb.ZAdd(ctx, l.keys()[2], z).Err() != nil {
			return
		}
		if _, err := l.TryAcquire(ctx, 1); err != nil {
			t.Fatalf("member %q at %v: %v", member, offset, err)
		}
		r, err := l.Reserve(ctx, 3, time.Minute)
		if err != nil {
			t.Fatalf("member %q at %v: %v", member, offset, err)
		}
		r.Cancel()
		if _, err := l.Inspect(ctx); err != nil {
			t.Fatalf("member %q at %v: %v", member, offset, err)
		}
		check(t, l.Release(ctx, 2))
	})
}

// A rate is refused with the one error for it, or reads as it is written.
func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"100/1s", "5/500ms", "1000/24h", "100/s", " 1 / 1s", "1/1h30m", "4294967295/1ms", "0/1s", "-1/1s", "1/1ns", "1/9999999h", "/", "1/", "1e3/1s", "1/1s/1s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRate(s)
		if err != nil {
			if !errors.Is(err, ErrInvalidRate) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if again, err := ParseRate(r.String()); err != nil || again != r {
			t.Fatalf("%q is %+v, and %q is %+v (%v)", s, r, r, again, err)
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}
