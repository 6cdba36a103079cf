package line

import (
	"math"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// had makes a schedule of pairs of ms and permits.
func had(pairs ...int64) (p schedule) {
	var sum int64
	for i := 0; i < len(pairs); i += 2 {
		sum += pairs[i+1]
		p.at, p.sum = append(p.at, pairs[i]*1000), append(p.sum, sum)
	}
	return p
}

func TestEarliest(t *testing.T) {
	sliding := script.Settings{Rate: 10, Interval: time.Second, Guard: 10 * time.Millisecond}
	calendar := script.Settings{Rate: 10, Interval: time.Second, Guard: 10 * time.Millisecond, Calendar: true}
	shifted := calendar
	shifted.Offset = 300_000
	for name, c := range map[string]struct {
		s             script.Settings
		first         int64 // ms
		ahead         schedule
		permits, size int64
		want          int64 // ms
	}{
		"the first":                                 {sliding, 2020, had(), 1, 1, 2020},
		"as many as the rate":                       {sliding, 2020, had(), 10, 1, 2020},
		"one more":                                  {sliding, 2020, had(), 11, 1, 3030},
		"thrice the rate":                           {sliding, 2020, had(), 30, 1, 4040},
		"after a burst":                             {sliding, 2020, had(1010, 10), 10, 1, 2020},
		"after an uneven one, what comes free":      {sliding, 2210, had(1200, 5, 1500, 5), 5, 1, 2210},
		"one more than that":                        {sliding, 2210, had(1200, 5, 1500, 5), 6, 1, 2510},
		"and in the span after it":                  {sliding, 2210, had(1200, 5, 1500, 5), 16, 1, 3520},
		"reservations of others are not known":      {sliding, 2210, had(1500, 2), 9, 1, 2510},
		"later reservations are not before it":      {sliding, 2210, had(1200, 5, 2500, 5), 10, 1, 2210},
		"three of three":                            {sliding, 2020, had(), 9, 3, 2020},
		"a fourth of three does not fit":            {sliding, 2020, had(), 12, 3, 3030},
		"each for all":                              {sliding, 2020, had(), 30, 10, 4040},
		"more than half, each alone":                {sliding, 2020, had(), 18, 6, 4040},
		"a three beside an uneven burst":            {sliding, 2210, had(1200, 5, 1500, 5), 6, 3, 2510},
		"more than there is time for":               {sliding, 2020, had(), math.MaxInt64 / 2, 1, 2020 + beyond/1000},
		"calendar: the first":                       {calendar, 5300, had(), 10, 1, 5300},
		"calendar: the next window":                 {calendar, 5300, had(), 11, 1, 6010},
		"calendar: the rest of a window":            {calendar, 5300, had(5100, 3, 5900, 1), 6, 1, 5300},
		"calendar: more than the rest":              {calendar, 5300, had(5100, 3, 5900, 1), 7, 1, 6010},
		"calendar: and the window after":            {calendar, 5300, had(5100, 4), 17, 1, 7010},
		"calendar: other windows count for nothing": {calendar, 5300, had(4900, 10, 6100, 5), 10, 1, 5300},
		"calendar: two bursts at a boundary":        {calendar, 5950, had(), 20, 1, 6010},
		"calendar: three of three":                  {calendar, 5300, had(5100, 2), 9, 3, 6010},
		"calendar: an offset":                       {shifted, 5200, had(5100, 2), 9, 1, 5310},
	} {
		if got := earliest(&c.s, c.first*1000, c.ahead, c.permits, c.size) / 1000; got != c.want {
			t.Errorf("%s: %dms, want %dms", name, got, c.want)
		}
	}
}

func TestSpaced(t *testing.T) {
	ten := script.Settings{Rate: 10, Interval: time.Second, Smooth: true}
	many := script.Settings{Rate: 1000, Interval: time.Second, Smooth: true}
	for name, c := range map[string]struct {
		s         script.Settings
		before, n int64
		want      int64 // ms
	}{
		"the first":                  {ten, 0, 1, 2000},
		"the third":                  {ten, 2, 1, 2200},
		"the third of three each":    {ten, 2, 3, 2600},
		"in a large log, of one":     {many, 100, 1, 2093},
		"in a large log, of three":   {many, 100, 3, 2295},
		"in a large log, the second": {many, 1, 3, 2000},
	} {
		if got := spaced(&c.s, 2_000_000, c.before, c.n) / 1000; got != c.want {
			t.Errorf("%s: %dms, want %dms", name, got, c.want)
		}
	}
}

// Those who ask for other amounts count as far as they must be served before.
func TestOutlook(t *testing.T) {
	type asked struct{ n, times int64 }
	for name, c := range map[string]struct {
		before []asked
		n      int64
		want   int64 // ms
	}{
		"nobody":                                 {nil, 1, 2000},
		"nobody, for more":                       {nil, 4, 2500},
		"alike":                                  {[]asked{{1, 25}}, 1, 4000},
		"smaller ones":                           {[]asked{{1, 25}}, 4, 4000},
		"smaller ones that come first":           {[]asked{{1, 10}}, 4, 3000},
		"smaller ones of several kinds":          {[]asked{{1, 5}, {2, 5}, {3, 2}}, 4, 4000},
		"alike, that leave gaps":                 {[]asked{{4, 4}}, 4, 4500},
		"bigger ones may be served later":        {[]asked{{10, 1}}, 1, 2000},
		"but have reservations within a horizon": {[]asked{{10, 20}}, 1, 2500 + 19_000 - 3000},
	} {
		o := &outlook{
			config: []script.Settings{{Rate: 10, Interval: time.Second}}, now: 1_000_000, ahead: make([]schedule, 1),
			told:    []told{{ns: []int64{1}, at: 2_000_000}, {ns: []int64{4}, at: 2_500_000}},
			horizon: func(ns []int64) time.Duration { return time.Second + time.Duration(ns[0])*200*time.Millisecond },
		}
		for _, a := range c.before {
			for range a.times {
				o.count([]int64{a.n})
			}
		}
		if at, _ := o.earliest([]int64{c.n}); at/1000 != c.want {
			t.Errorf("%s: %dms, want %dms", name, at/1000, c.want)
		}
	}
}
