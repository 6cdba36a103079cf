package asynqlimit

import (
	"slices"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

func TestDecide(t *testing.T) {
	const hold = 2 * time.Second
	tests := []struct {
		name string
		is   standing
		want verdict
	}{
		{"fresh", standing{hold: hold, most: time.Hour, room: true}, verdict{wait: hold}},
		{"behind others", standing{hold: hold, most: time.Hour, room: true, ahead: "api"}, verdict{park: "api"}},
		{"called, others behind it", standing{came: line.Called, hold: hold, most: time.Hour, room: true, ahead: "api"}, verdict{wait: hold}},
		{"called, no room", standing{came: line.Called, hold: hold, most: time.Hour}, verdict{wait: line.Settled + lead + slack}},
		{"called, no room, without hold", standing{came: line.Called, most: time.Hour}, verdict{wait: lead + slack}},
		{"called, no room, never parks", standing{came: line.Called, hold: time.Hour, never: true, most: time.Hour}, verdict{wait: time.Hour}},
		{"called, without hold", standing{came: line.Called, most: time.Hour, room: true}, verdict{wait: lead + slack}},
		{"called for a slot, without hold", standing{came: line.Called, forSlot: true, most: time.Hour}, verdict{wait: line.Settled + lead + slack}},
		{"called for a slot, earlier ones wait for permits", standing{came: line.Called, forSlot: true, most: time.Hour, ahead: "api"}, verdict{park: "api"}},
		{"called for permits, needs a slot, too", standing{came: line.Called, slots: true, most: time.Hour, room: true}, verdict{wait: line.Settled + lead + slack}},
		{"called for a slot, tenants share", standing{came: line.Called, forSlot: true, hold: hold, most: time.Hour, shared: true}, verdict{wait: line.Settled + lead + slack}},
		{"called for a slot, with a long hold", standing{came: line.Called, forSlot: true, hold: time.Minute, most: time.Hour}, verdict{wait: line.Settled + lead + slack}},
		{"called for a slot, in an order", standing{forSlot: true, hold: hold, most: time.Hour, ahead: "api"}, verdict{park: "api"}},
		{"back from a process that drained", standing{came: line.Back, most: time.Hour, ahead: "api"}, verdict{wait: lead + slack}},
		{"run by hand while in line", standing{came: line.Parked, hold: hold, most: time.Hour, room: true, ahead: "api"}, verdict{park: "api"}},
		{"without hold", standing{most: time.Hour, room: true}, verdict{}},
		{"no room", standing{hold: hold, most: time.Hour}, verdict{}},
		{"never parks", standing{hold: time.Hour, never: true, most: time.Hour, ahead: "api"}, verdict{wait: time.Hour}},
		{"little time", standing{hold: hold, most: time.Second, room: true}, verdict{wait: time.Second}},
		{"no time", standing{came: line.Called, hold: hold, room: true}, verdict{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := decide(tt.is); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestPassesApart(t *testing.T) {
	for lines, want := range map[int64]time.Duration{0: busy, 10: busy + time.Millisecond, 250: 2 * busy, 1_000_000: 2 * busy} {
		if got := passesApart(lines); got != want {
			t.Errorf("with %d lines a pass comes %v after the one before, want %v", lines, got, want)
		}
	}
}

func TestNextLook(t *testing.T) {
	tests := []struct {
		wait  time.Duration
		lines int64
		short bool
		want  time.Duration
	}{
		{0, 1, false, soonest},
		{0, 1, true, whenShort},
		{lead + time.Millisecond, 1, false, soonest + time.Millisecond},
		{lead + 100*time.Millisecond, 1, false, soonest + 100*time.Millisecond},
		{time.Hour, 1, false, farthest},
		{time.Hour, 10_000, false, 5 * time.Second},
		{time.Hour, 10_000_000, false, longest},
		{time.Second, 10_000, false, time.Second - lead + soonest},
	}
	for _, tt := range tests {
		if got := nextVisit(tt.wait, visitsApart(tt.lines, perLine), tt.short); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// TestNextClaims: a pass sees many lines where few have permits, and few where it cannot call all that have.
func TestNextClaims(t *testing.T) {
	claims := 4
	for range 10 {
		claims = nextClaims(max(claims, 4), 4, 0, true)
	}
	if claims != line.MaxClaimed {
		t.Errorf("%d lines where none has permits", claims)
	}
	if got := nextClaims(claims, 4, 1, false); got != claims {
		t.Errorf("%d lines where there are no more", got)
	}
	for range 10 {
		claims = nextClaims(max(claims, 4), 4, 4, true)
	}
	if claims > 4 {
		t.Errorf("%d lines for a capacity of 4", claims)
	}
}

func TestAllot(t *testing.T) {
	tests := []struct {
		capacity    int64
		needs, want []int64
	}{
		{10, []int64{3, 100, 3}, []int64{3, 4, 3}},
		{10, []int64{100, 100}, []int64{5, 5}},
		{3, []int64{100, 100}, []int64{2, 1}},
		{100, []int64{1, 2, 3}, []int64{1, 2, 3}},
		{0, []int64{5, 5}, []int64{0, 0}},
		{5, nil, nil},
	}
	for _, tt := range tests {
		if got := allot(tt.capacity, tt.needs); !slices.Equal(got, tt.want) {
			t.Errorf("capacity %d for %v: %v, want %v", tt.capacity, tt.needs, got, tt.want)
		}
	}
}

func TestStayAway(t *testing.T) {
	for times, want := range map[int64]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 20: time.Minute} {
		if got := stayAway(time.Second, time.Minute, times); got != want {
			t.Errorf("%d times: %v, want %v", times, got, want)
		}
	}
}

// TestProbe: the steps of a probe, and how many jobs it calls at each step.
func TestProbe(t *testing.T) {
	began := time.Now()
	type step struct {
		at             time.Duration
		passed, failed int // before this step
		want           int
	}
	tests := map[string][]step{
		"nobody mends it": {
			{0, 0, 0, 1}, {time.Second, 0, 1, 0}, {2 * time.Second, 0, 0, 1}, {5 * time.Second, 0, 1, 0}, {6 * time.Second, 0, 0, 1},
			{14 * time.Second, 0, 1, 1}, {30 * time.Second, 0, 1, 1}, {60 * time.Second, 0, 1, 1}, {89 * time.Second, 0, 1, 0}, {90 * time.Second, 0, 0, 1},
		},
		"it opens": {
			{0, 0, 0, 1}, {openEvery, 1, 0, 4}, {2 * openEvery, 4, 0, 16}, {3 * openEvery, 16, 0, 64}, {4 * openEvery, 64, 0, 256}, {5 * openEvery, 256, 0, 500},
			{6 * openEvery, 400, 100, 500},
		},
		"most that are left are wrong": {
			{0, 0, 0, 1}, {openEvery, 1, 0, 4}, {2 * openEvery, 4, 0, 16}, {3 * openEvery, 2, 14, 4}, {4 * openEvery, 0, 4, 1}, {5 * openEvery, 0, 1, 0},
		},
		"others take what is called": {{0, 0, 0, 1}, {2 * time.Second, 0, 0, 1}, {2*time.Second + openEvery, 1, 0, 4}, {2*time.Second + 2*openEvery, 0, 0, 4}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var p probe
			for i, s := range steps {
				now := began.Add(s.at)
				for range s.passed {
					p.saw(true, now.Add(-openEvery))
				}
				for range s.failed {
					p.saw(false, now.Add(-openEvery))
				}
				if got := p.allowance(now, &tries{}); got != s.want {
					t.Fatalf("step %d, at %v: %d jobs, want %d", i, s.at, got, s.want)
				}
			}
		})
	}
}

// TestProbesOfManyLines: however many lines there are, a process tries at most 500 jobs a second,
// and each line within the time that this takes.
func TestProbesOfManyLines(t *testing.T) {
	const lines = 4000
	var pace tries
	began := time.Now()
	probes, tried := make([]probe, lines), make([]int, lines)
	inSecond := map[int]int{}
	for at := time.Duration(0); at < 30*time.Second; at += 25 * time.Millisecond {
		for i := range probes {
			if n := probes[i].allowance(began.Add(at), &pace); n > 0 {
				tried[i]++
				inSecond[int(at/time.Second)] += n
				probes[i].saw(false, began.Add(at))
			}
		}
	}
	for second, n := range inSecond {
		if n > 500+probesAtOnce {
			t.Errorf("%d tries in second %d", n, second)
		}
	}
	if n := slices.Min(tried); n == 0 {
		t.Error("a line was not tried in 30s")
	}
	open := probe{batch: 16, passed: 16}
	if n := open.allowance(began, &tries{next: began.Add(time.Hour)}); n != 64 {
		t.Errorf("%d jobs of a line that has opened, want 64", n)
	}
}

func TestWasPutOff(t *testing.T) {
	api := &ThrottledError{Limiter: `odd "one", next`, RetryAfter: 90 * time.Second}
	for text, want := range map[string]bool{
		api.Error(): true,
		(&ThrottledError{RetryAfter: time.Second}).Error():          true,
		(&ThrottledError{Limiter: "api", Err: errDraining}).Error(): true,
		"throttled":                                               false,
		"throttled by upstream":                                   false,
		"throttled by limiter of the API":                         false,
		`throttled by limiter "api"`:                              false,
		"throttled, next try in about a minute":                   false,
		"POST: " + api.Error():                                    false,
		(&ThrottledError{Err: Blocked("x", errDraining)}).Error(): false,
	} {
		if got := WasPutOff(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if reason, rest, ok := BlockedFor(Blocked("no_credential", errDraining).Error()); !ok || reason != "no_credential" || rest != errDraining.Error() {
		t.Errorf("%q, %q, %v", reason, rest, ok)
	}
}

// TestProbeLeft: what is left of a batch, for want of capacity, is called before the next batch.
func TestProbeLeft(t *testing.T) {
	began := time.Now()
	p := probe{batch: 4, passed: 4}
	for i, s := range []struct {
		at          time.Duration
		want, takes int
	}{
		{0, 16, 10}, {openEvery / 4, 6, 4}, {openEvery / 2, 2, 2}, {openEvery * 3 / 4, 0, 0}, {openEvery, 16, 0}, {openEvery + 1, 16, 0},
	} {
		if got := p.allowance(began.Add(s.at), &tries{}); got != s.want {
			t.Errorf("step %d: %d, want %d", i, got, s.want)
		}
		p.left -= s.takes
	}
}

// TestProbeAgain: if all jobs that a try finds have parked just now, the line is tried again once they can be called;
// only once, and the pauses until the tries after that are as long as without it.
func TestProbeAgain(t *testing.T) {
	began := time.Now()
	for name, steps := range map[string][]struct {
		at           time.Duration
		want, called int
	}{
		"they could be called then": {{0, 1, 0}, {line.Settled - 1, 0, 0}, {line.Settled, 1, 1}, {line.Settled + probeFirst - 1, 0, 0}, {line.Settled + probeFirst, 1, 1}},
		"others have parked since":  {{0, 1, 0}, {line.Settled, 1, 0}, {2 * line.Settled, 0, 0}, {line.Settled + probeFirst, 1, 0}, {2*line.Settled + probeFirst, 1, 0}, {2*line.Settled + probeFirst*3 - 1, 0, 0}, {2*line.Settled + probeFirst*3, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var p probe
			for i, s := range steps {
				now := began.Add(s.at)
				got := p.allowance(now, &tries{})
				if got != s.want {
					t.Fatalf("step %d, at %v: %d jobs, want %d", i, s.at, got, s.want)
				}
				if got > 0 {
					p.called(int64(s.called), now)
				}
			}
		})
	}
}

func TestSortNext(t *testing.T) {
	for _, tt := range []struct {
		name                       string
		last, came, called, parked int
		cut                        bool
		few                        int
		lasted                     time.Duration
		want                       int
	}{
		{"all park", 8, 8, 0, 8, false, 0, time.Millisecond, 32},
		{"half of them", 20, 20, 0, 10, false, 0, time.Millisecond, 80},
		{"never more", 200, 200, 0, 200, false, 0, time.Millisecond, 200},
		{"most do not", 200, 200, 0, 80, false, 0, time.Millisecond, 0},
		{"most do not, and no more are there", 100, 8, 0, 3, false, 0, time.Millisecond, 0},
		{"most of a few do not", 8, 8, 0, 3, false, 0, time.Millisecond, 32},
		{"most do not, because they were called", 200, 200, 150, 25, false, 0, time.Millisecond, 200},
		{"none", 200, 200, 0, 0, false, 0, time.Millisecond, 0},
		{"none, and no more are there", 32, 8, 0, 0, false, 0, time.Millisecond, 0},
		{"none of a few", 32, 32, 20, 0, false, 0, time.Millisecond, 128},
		{"none of a few, slowly", 1, 1, 0, 0, false, 0, time.Second, 0},
		{"all were called", 32, 8, 8, 0, false, 0, time.Millisecond, 0},
		{"slow", 200, 200, 0, 200, false, 0, time.Second, 100},
		{"the queue is empty", 8, 0, 0, 0, false, 0, time.Millisecond, 0},
		{"none of a few large ones", 200, 20, 0, 0, true, 0, time.Millisecond, 200},
		{"none of a few large ones, slowly", 200, 20, 0, 0, true, 0, time.Second, 100},
		{"none of many large ones, a few each time", 50, 20, 0, 0, true, sortEnds, time.Second, 0},
		{"most do park of many large ones", 200, 20, 0, 15, true, sortEnds, time.Millisecond, 200},
	} {
		if got := sortNext(tt.last, tt.came, tt.called, tt.parked, tt.cut, tt.few, tt.lasted); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
