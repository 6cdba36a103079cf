package oracle

import (
	"slices"
	"testing"
)

// Times are small numbers here: a window of 10 with a guard of 2 counts 12.

var (
	five     = Limit{Permits: 5, Interval: 10}
	guarded  = Limit{Permits: 5, Interval: 10, Guard: 2}
	evenly   = Limit{Permits: 5, Interval: 10, Smooth: true}
	calendar = Limit{Permits: 5, Interval: 10, Guard: 1, Calendar: true, Offset: 3}
	paused   = Limit{Permits: 5, Interval: 10, Pause: 40}
	long     = Limit{Permits: 3, Interval: 1000, Guard: 24}
)

func TestExcess(t *testing.T) {
	for _, tc := range []struct {
		name  string
		limit Limit
		log   Log
		span  int64
		want  Window
	}{
		{"nothing", five, nil, 10, Window{}},
		{"as much as may be", five, Log{{0, 2}, {9, 3}}, 10, Window{}},
		{"one too many at once", five, Log{{7, 6}}, 10, Window{7, 17, 6}},
		{"one too many at the end of the window", five, Log{{0, 2}, {9, 4}}, 10, Window{0, 10, 6}},
		{"an interval apart", five, Log{{0, 5}, {10, 5}}, 10, Window{}},
		{"within the guard", guarded, Log{{0, 5}, {11, 5}}, guarded.Span(), Window{0, 12, 10}},
		{"the guard is over", guarded, Log{{0, 5}, {12, 5}}, guarded.Span(), Window{}},
		{"it begins in the middle", five, Log{{0, 3}, {6, 2}, {11, 3}, {14, 1}}, 10, Window{6, 16, 6}},
		{"reservations count like grants", five, Log{{100, 5}, {109, 1}}, 10, Window{100, 110, 6}},
		{"on either side of a calendar boundary", calendar, Log{{12, 5}, {13, 5}}, 10, Window{}},
		{"one calendar window", calendar, Log{{13, 5}, {22, 1}}, 10, Window{13, 23, 6}},
		{"two entries of one time", five, Log{{4, 3}, {4, 3}}, 10, Window{4, 14, 6}},
	} {
		if got, found := tc.limit.Excess(tc.log, tc.span); got != tc.want || found != (tc.want != Window{}) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestEarliest(t *testing.T) {
	for _, tc := range []struct {
		name   string
		asks   []Ask
		from   int64
		want   int64
		latest int64
	}{
		{"nothing there", []Ask{{five, nil, 5, false}}, 3, 3, 3},
		{"room beside others", []Ask{{five, Log{{0, 2}}, 3, false}}, 3, 3, 3},
		{"when the first expires", []Ask{{five, Log{{0, 2}, {4, 3}}, 1, false}}, 5, 10, 10},
		{"when enough has expired", []Ask{{five, Log{{0, 2}, {4, 3}}, 3, false}}, 5, 14, 14},
		{"the guard counts", []Ask{{guarded, Log{{0, 5}}, 1, false}}, 5, 12, 12},
		{"before a reservation, which it does not delay", []Ask{{five, Log{{20, 4}}, 1, false}}, 5, 5, 5},
		{"not before a reservation, which it would delay", []Ask{{five, Log{{20, 5}}, 1, false}}, 11, 30, 30},
		{"as long before it as a window", []Ask{{five, Log{{20, 5}}, 1, false}}, 10, 10, 10},
		{"in a gap between reservations", []Ask{{five, Log{{0, 5}, {10, 3}, {20, 5}}, 2, false}}, 5, 10, 10},
		{"a gap that is too small", []Ask{{five, Log{{0, 5}, {11, 3}, {20, 5}}, 2, false}}, 5, 10, 10},
		{"a gap that is full in a later window", []Ask{{five, Log{{0, 5}, {13, 4}, {19, 1}}, 1, false}}, 5, 23, 23},
		{"evenly", []Ask{{evenly, Log{{0, 1}}, 1, false}}, 0, 2, 2},
		{"evenly, more permits later", []Ask{{evenly, Log{{0, 1}}, 3, false}}, 0, 6, 6},
		{"evenly, not just before another", []Ask{{evenly, Log{{6, 2}}, 1, false}}, 3, 8, 8},
		{"evenly, also before two that another rate has put too close together", []Ask{{evenly, Log{{10, 1}, {11, 3}}, 1, false}}, 7, 7, 7},
		{"evenly, the distance of the other before it", []Ask{{evenly, Log{{6, 2}}, 1, false}}, 2, 2, 2},
		{"not within guard of a calendar boundary", []Ask{{calendar, nil, 1, false}}, 12, 14, 14},
		{"nor just after it", []Ask{{calendar, nil, 1, false}}, 13, 14, 14},
		{"in the next calendar window", []Ask{{calendar, Log{{15, 5}}, 1, false}}, 16, 24, 24},
		{"after a pause", []Ask{{paused, nil, 1, false}}, 16, 40, 40},
		{"when both have room", []Ask{{five, Log{{0, 5}}, 1, false}, {calendar, nil, 1, false}}, 2, 10, 10},
		{"when both have room again", []Ask{{five, Log{{3, 5}}, 1, false}, {calendar, nil, 1, false}}, 4, 14, 14},
		{"a bucket after it where the log is long", []Ask{{long, Log{{0, 3}}, 1, true}}, 5, 1024, 1028},
		{"no bucket where another is full", []Ask{{five, Log{{0, 5}}, 1, false}, {long, Log{{0, 1}}, 1, true}}, 5, 10, 10},
		{"no bucket where there is room", []Ask{{long, Log{{0, 1}}, 1, true}}, 5, 5, 5},
	} {
		p := Plan(tc.asks...)
		if got := p.Earliest(tc.from); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
		if got := p.Latest(tc.from); got != tc.latest {
			t.Errorf("%s: at the latest %d, want %d", tc.name, got, tc.latest)
		}
	}
}

// The earliest time is the first at which all windows hold, tried one by one.
func TestEarliestIsTheFirstThatFits(t *testing.T) {
	for _, l := range []Limit{five, guarded, calendar, {Permits: 3, Interval: 7, Guard: 1}} {
		for seed := range int64(500) {
			var log Log
			next := seed*7919 + 13
			for range 4 + seed%5 {
				next = (next*48271 + 11) % 2147483647
				at, n := next%40, 1+next/64%2
				l := l
				l.Pause = 0
				if Plan(Ask{l, log, n, false}).Fits(at) {
					log = log.With(at, n)
				}
			}
			if w, over := l.Excess(log, l.Span()); over {
				t.Fatalf("%+v %v: %+v", l, log, w)
			}
			want := seed % 20
			for n := seed%2 + 1; ; want++ {
				start := l.Start(want)
				boundary := l.Calendar && (want < start+l.Guard || want >= start+l.Interval-l.Guard)
				if _, over := l.Excess(log.With(want, n), l.Span()); !over && !boundary {
					break
				}
			}
			if got := Plan(Ask{l, log, seed%2 + 1, false}).Earliest(seed % 20); got != want {
				t.Fatalf("%+v %v: %d permits from %d on: %d, want %d", l, log, seed%2+1, seed%20, got, want)
			}
		}
	}
}

func TestTakeBackAndRelease(t *testing.T) {
	log := Log{{0, 2}, {5, 3}, {7, 1}, {20, 1}}
	for _, tc := range []struct {
		name string
		got  Log
		want Log
	}{
		{"part of a grant", first(log.TakeBack(five, 5, 2, 50, false)), Log{{0, 2}, {5, 1}, {7, 1}, {20, 1}}},
		{"no more than it was", first(log.TakeBack(five, 5, 9, 50, false)), Log{{0, 2}, {7, 1}, {20, 1}}},
		{"a grant that is not there", first(log.TakeBack(five, 6, 1, 50, false)), log},
		{"what was merged into a bucket", first(Log{{1025, 4}}.TakeBack(long, 1024, 3, 2000, false)), Log{{1025, 1}}},
		{"not out of what is ahead", first(Log{{1026, 4}}.TakeBack(long, 1024, 3, 1025, false)), Log{{1026, 4}}},
		{"of the limit before it was changed", first(Log{{1024, 4}, {1025, 4}}.TakeBack(long, 1024, 5, 2000, true)), Log{{1025, 4}}},
		{"not out of the next bucket", first(Log{{1028, 4}}.TakeBack(long, 1024, 3, 2000, false)), Log{{1028, 4}}},
		{"the oldest first", log.Release(10, 3), Log{{5, 2}, {7, 1}, {20, 1}}},
		{"no reservations", log.Release(10, 99), Log{{20, 1}}},
	} {
		if !slices.Equal(tc.got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, tc.got, tc.want)
		}
	}
}

func first(log Log, _ int64) Log { return log }

func TestKept(t *testing.T) {
	want := Log{{0, 2}, {512, 1}, {514, 2}, {2000, 1}}
	for _, tc := range []struct {
		name    string
		got     Log
		buckets bool
		kept    bool
	}{
		{"as it was", want, false, true},
		{"one less", Log{{0, 2}, {512, 1}, {514, 1}, {2000, 1}}, false, false},
		{"one elsewhere", Log{{0, 2}, {513, 1}, {514, 2}, {2000, 1}}, false, false},
		{"merged", Log{{0, 2}, {514, 3}, {2000, 1}}, true, true},
		{"merged, to a later time of the bucket", Log{{0, 2}, {515, 3}, {2000, 1}}, true, true},
		{"moved earlier", Log{{0, 2}, {512, 3}, {2000, 1}}, true, false},
		{"moved too far", Log{{0, 2}, {600, 3}, {2000, 1}}, true, false},
		{"a reservation that moved", Log{{0, 2}, {512, 1}, {514, 2}, {2001, 1}}, true, false},
	} {
		if why := long.Kept(want, tc.got, 1000, tc.buckets); (why == "") != tc.kept {
			t.Errorf("%s: %q", tc.name, why)
		}
	}
}
