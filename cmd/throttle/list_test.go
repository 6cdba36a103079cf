package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

func TestListNothing(t *testing.T) {
	s := newSite(t)
	if got := s.done("list"); !strings.HasPrefix(got, "no limits in Redis at "+s.addr+": they appear when") {
		t.Errorf("printed %q", got)
	}
	if got := s.done("list", "--match", "x*"); !strings.HasPrefix(got, `no limits match "x*" in Redis at `+s.addr) {
		t.Errorf("printed %q", got)
	}
	if got := s.done("list", "--json"); got != "" {
		t.Errorf("printed %q, want no line", got)
	}
}

func TestList(t *testing.T) {
	s := newSite(t)
	s.limiter("quota", throttle.Rate{Permits: 5000, Interval: 24 * time.Hour, Window: throttle.Calendar}, 17)
	s.limiter("each", throttle.Rate{Permits: 25, Interval: time.Hour, Type: throttle.PerClient}, 25)
	paused := s.limiter("api", perHour(100), 100)
	s.check(paused.Pause(t.Context(), 2*time.Hour))
	s.check(operate.NewFleet(s.rdb).Pin(t.Context(), "api"))

	got := s.run("list")
	lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
	if len(lines) != 4 || got.stderr != "3 limits\n" {
		t.Fatalf("printed %q and %q", got.stdout, got.stderr)
	}
	var rows [][]string
	for _, line := range lines {
		rows = append(rows, strings.Fields(strings.Replace(line, "1h59m59s,", "2h,", 1))) // a second later
	}
	want := [][]string{
		{"api", "100/1h", "overall", "100", "0", "0", "2h", "0", "paused", "2h,", "pinned"},
		{"each", "25/1h", "per_client", "25", "0", "0"},
		{"quota", "5000/24h", "overall", "17", "0", "4983", "now", "0"},
	}
	for i, w := range want {
		if len(rows[i+1]) < len(w) || !slices.Equal(rows[i+1][:len(w)], w) {
			t.Errorf("row %d is %q, want %q", i, rows[i+1], w)
		}
	}
	state := strings.Index(lines[0], "STATE")
	if strings.Index(lines[1], "paused") != state {
		t.Errorf("not aligned:\n%s", got.stdout)
	}
	if got := s.run("list", "--max", "1"); !strings.Contains(got.stdout, "api") || strings.Contains(got.stdout, "each") || got.stderr != "3 limits, the first 1 of them shown\n" {
		t.Errorf("--max 1 printed %q and %q", got.stdout, got.stderr)
	}
	if got := s.run("list", "--match", "q*"); !strings.Contains(got.stdout, "quota") || got.stderr != "1 limit match \"q*\"\n" {
		t.Errorf("--match printed %q and %q", got.stdout, got.stderr)
	}
}

func TestListJSON(t *testing.T) {
	s := newSite(t)
	s.limiter("a", throttle.Rate{Permits: 10, Interval: time.Hour, Guard: 2500 * time.Microsecond, Smooth: true, KeepAlive: 2 * time.Hour}, 0)
	s.limiter("b", throttle.Rate{Permits: 10, Interval: time.Hour, Type: throttle.PerClient}, 4)
	lines := strings.Split(s.done("list", "--json"), "\n")
	if len(lines) != 3 || lines[2] != "" {
		t.Fatalf("printed %q, want two lines", lines)
	}
	const wantA = `{"name":"a","rate":"10/1h","type":"overall","permits":10,"interval_ms":3600000,"guard_ms":2.5,"smooth":true,"window":"sliding",` +
		`"offset_ms":0,"keep_alive_ms":7200000,"paused_ms":0,"pinned":false,"used":0,"reserved":0,"available":10,"next_free_ms":0,"parked":0,"called":0}`
	if lines[0] != wantA {
		t.Errorf("printed\n%s\nwant\n%s", lines[0], wantA)
	}
	b := decode[limiter](t, lines[1])
	if b.Type != "per_client" || b.Used != 4 || len(b.Clients) != 1 || b.Clients[0].ID != s.client.ID() || b.Clients[0].Available != 6 {
		t.Errorf("printed %s", lines[1])
	}
}

func TestShow(t *testing.T) {
	s := newSite(t)
	s.limiter("each", throttle.Rate{Permits: 10, Interval: time.Hour, Type: throttle.PerClient}, 10)
	s.limiter("quota", throttle.Rate{Permits: 5, Interval: time.Hour, Window: throttle.Calendar, Offset: time.Minute, Guard: -1}, 0)
	s.limiter("unused", throttle.Rate{Permits: 5, Interval: time.Hour, Type: throttle.PerClient}, 0)
	text := s.done("show", "each")
	for _, want := range []string{"10/1h for each worker (per_client)", "sliding", "guard       50ms", "used        10", "pinned      no: workers",
		"parked      no jobs", "CLIENT", s.client.ID()} {
		if !strings.Contains(text, want) {
			t.Errorf("show each does not say %q:\n%s", want, text)
		}
	}
	text = s.done("show", "quota")
	for _, want := range []string{"5/1h for the fleet together (overall)", "calendar, from 1m after UTC midnight", "guard       none", "paused      no"} {
		if !strings.Contains(text, want) {
			t.Errorf("show quota does not say %q:\n%s", want, text)
		}
	}
	if text := s.done("show", "unused"); !strings.Contains(text, "no worker has used it lately") {
		t.Errorf("show unused:\n%s", text)
	}
	if l := decode[limiter](t, s.done("show", "each", "--json")); l.Used != 10 || l.Available != 0 || len(l.Clients) != 1 {
		t.Errorf("as JSON: %+v", l)
	}
}

// TestUnknownLimiter: every verb that wants a limiter names one that is like it, or says which
// command shows all.
func TestUnknownLimiter(t *testing.T) {
	s := newSite(t)
	s.limiter("stripe", perHour(10), 0)
	s.limiter("billing", perHour(10), 0)
	for _, args := range [][]string{
		{"show", "strpie"}, {"pause", "strpie", "1s"}, {"resume", "strpie"}, {"pin", "strpie"}, {"unpin", "strpie"},
		{"delete", "strpie"}, {"set", "strpie", "--pin"},
	} {
		s.fails(cli.Failed, args, []string{`"strpie"`, `did you mean "stripe"`, "throttle list"})
	}
	s.fails(cli.Failed, []string{"show", "zzz"}, []string{`"zzz"`, "throttle list", "throttle set"})
	s.fails(cli.Failed, []string{"show", "s"}, []string{`"s"`, "throttle list"})
	s.fails(cli.Usage, []string{"show", "a{b"}, []string{"a{b", "hash tag"})
	s.fails(cli.Usage, []string{"set", "", "1/1s"}, []string{"invalid limiter name"})
	keys := slices.DeleteFunc(s.rdb.Keys(t.Context(), "*").Val(), func(key string) bool {
		return strings.Contains(key, ":reply:") // against repeats, for some seconds
	})
	if slices.Sort(keys); !slices.Equal(keys, []string{"billing", "stripe"}) {
		t.Errorf("keys %q, want the two limiters alone", keys)
	}
}

func TestHuman(t *testing.T) {
	for d, want := range map[time.Duration]string{
		123456 * time.Nanosecond: "123µs", 1234567 * time.Nanosecond: "1ms", 340 * time.Millisecond: "340ms",
		12345 * time.Millisecond: "12.3s", time.Minute: "1m", time.Hour: "1h", 26*time.Hour + time.Second: "26h0m1s", 90 * time.Minute: "1h30m",
	} {
		if got := human(d); got != want {
			t.Errorf("human(%d) = %q, want %q", d, got, want)
		}
	}
}

// fill makes n limiters as a keyed limit leaves them: with a log, a cached value and the clients seen.
func (s *site) fill(n int) {
	s.Helper()
	now := s.rdb.Time(s.Context()).Val()
	for from := 0; from < n; from += 1000 {
		_, err := s.rdb.Pipelined(s.Context(), func(p redis.Pipeliner) error {
			for i := from; i < min(from+1000, n); i++ {
				name := fmt.Sprintf("account:%06d", i)
				p.HSet(s.Context(), name, "rate", 10, "interval", 1000, "type", 0, "keepAliveTime", 3600000, "guard", 10000, "smooth", 0,
					"window", 0, "offset", 0, "layout", 1, "epoch", now.UnixMicro(), "pause", 0, "seal", "10:1000:0:3600000:10000:0:0:0:1:0")
				p.ZAdd(s.Context(), "{"+name+"}:permits", redis.Z{Score: float64(now.UnixMilli()), Member: "\x08\x00\x00\x00\x00\x00\x00\x00\x01\x01\x00\x00\x00"})
				p.Set(s.Context(), "{"+name+"}:value", 9, 0)
				p.ZAdd(s.Context(), "{"+name+"}:clients", redis.Z{Score: float64(now.UnixMicro()), Member: s.client.ID()})
			}
			return nil
		})
		s.check(err)
	}
}

// TestListAsksNothingOfTasks: the backlog of a queue does not make the list slow.
func TestListAsksNothingOfTasks(t *testing.T) {
	s := newSite(t)
	s.limiter("api", perHour(100), 0)
	w := s.workers("")
	for i := range 50 {
		w.enqueue("x", fmt.Sprint(i))
	}
	s.check(s.rdb.ConfigResetStat(t.Context()).Err())
	if got := s.run("list"); got.stderr != "1 limit\n" {
		t.Errorf("the summary is %q", got.stderr)
	}
	stats := s.rdb.InfoMap(t.Context(), "commandstats").Item("Commandstats", "cmdstat_hmget")
	// One of the list, one within the script that reads the usage.
	if !strings.HasPrefix(stats, "calls=2,") {
		t.Errorf("HMGET of more than the limit: %s", stats)
	}
}

// TestListMany pages through many limiters: all of them, each once, by name,
// and without a command that keeps Redis from serving others.
func TestListMany(t *testing.T) {
	n := 3000
	if os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" {
		n = 100_000
	}
	s := newSite(t)
	s.fill(n)
	s.check(s.rdb.ConfigResetStat(t.Context()).Err())
	got := s.run("list", "--json")
	if got.status != cli.Done {
		t.Fatal(got.stderr)
	}
	seen := 0
	for lines := bufio.NewScanner(strings.NewReader(got.stdout)); lines.Scan(); seen++ {
		var l struct{ Name string }
		s.check(json.Unmarshal(lines.Bytes(), &l))
		if want := fmt.Sprintf("account:%06d", seen); l.Name != want {
			t.Fatalf("line %d is %q, want %q", seen, l.Name, want)
		}
	}
	if seen != n {
		t.Errorf("%d limiters listed, want %d", seen, n)
	}
	stats := s.rdb.Info(t.Context(), "commandstats").Val()
	if strings.Contains(stats, "cmdstat_keys:") || !strings.Contains(stats, "cmdstat_scan:") {
		t.Errorf("want SCAN and no KEYS:\n%s", stats)
	}
	if got := s.run("list"); !strings.Contains(got.stderr, fmt.Sprintf("%d limits; the usage is shown for up to 1000", n)) || strings.Contains(got.stdout, "USED") {
		t.Errorf("the summary is %q", got.stderr)
	}
	if got := s.run("list", "--max", "5"); !strings.Contains(got.stdout, "USED") || strings.Count(got.stdout, "\n") != 6 {
		t.Errorf("--max 5 printed\n%s", got.stdout)
	}
}

// BenchmarkList is the time to list 100,000 limiters, as a table and as JSON.
func BenchmarkList(b *testing.B) {
	const n = 100_000
	s := newSite(b)
	s.fill(n)
	for _, args := range [][]string{{"list"}, {"list", "--json"}, {"list", "--limit", "1000"}, {"list", "--match", "account:0001*"}} {
		b.Run(strings.Join(args, " "), func(b *testing.B) {
			before := s.cpu()
			for b.Loop() {
				if got := runCommand(b.Context(), append(args, "--redis", s.addr)...); got.status != cli.Done {
					b.Fatal(got.stderr)
				}
			}
			b.ReportMetric((s.cpu()-before)/float64(b.N), "redis-cpu-s/op")
		})
	}
}

// cpu is how many seconds of a processor the Redis server has used.
func (s *site) cpu() float64 {
	s.Helper()
	total := 0.0
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(s.rdb.InfoMap(s.Context(), "cpu").Item("CPU", field), 64)
		s.check(err)
		total += seconds
	}
	return total
}
