package line

import (
	"slices"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Who has which turn after some came too late, of a limit of 100/1s. A time is in ms from now; one of 0 is none.
func TestTurns(t *testing.T) {
	type waits struct {
		no        uint64
		at, until int
		late      bool
		told      bool // sleeps until its time by itself
		ns        int64
		among     string
		came      int64
	}
	for name, c := range map[string]struct {
		ws   []waits
		want []int // the times after that
	}{
		"late":                          {[]waits{{no: 1, at: 50, late: true}, {no: 2, at: 20}, {no: 3, at: 30}, {no: 4, at: 40}}, []int{20, 30, 40, 50}},
		"nothing for it":                {[]waits{{no: 1, late: true}, {no: 2, at: 20}, {no: 3, at: 30}}, []int{20, 30, 0}},
		"two":                           {[]waits{{no: 2, late: true}, {no: 1, at: 60, late: true}, {no: 3, at: 20}, {no: 4, at: 30}, {no: 5, at: 40}}, []int{30, 20, 40, 60, 0}},
		"both without":                  {[]waits{{no: 2, late: true}, {no: 1, late: true}, {no: 3, at: 20}, {no: 4, at: 30}, {no: 5, at: 40}}, []int{30, 20, 40, 0, 0}},
		"nobody came later":             {[]waits{{no: 9, at: 50, late: true}, {no: 2, at: 20}, {no: 3, at: 30}}, []int{50, 20, 30}},
		"another came earlier":          {[]waits{{no: 3, at: 50, late: true}, {no: 2, at: 20}, {no: 4, at: 30}}, []int{30, 20, 50}},
		"on its way":                    {[]waits{{no: 1, at: 50, late: true}, {no: 2, at: 1}, {no: 3, at: 30}}, []int{30, 1, 50}},
		"told":                          {[]waits{{no: 1, at: 50, late: true}, {no: 2, at: 20, told: true}, {no: 3, at: 30}}, []int{30, 20, 50}},
		"as much only":                  {[]waits{{no: 1, at: 50, late: true}, {no: 2, at: 20, ns: 3}, {no: 3, at: 30}}, []int{30, 20, 50}},
		"a deadline":                    {[]waits{{no: 1, at: 50, late: true}, {no: 2, at: 20, until: 45}, {no: 3, at: 30}}, []int{30, 20, 50}},
		"in time":                       {[]waits{{no: 1, at: 50, late: true}, {no: 2, at: 20, until: 50}}, []int{20, 50}},
		"none with too little time":     {[]waits{{no: 1, late: true}, {no: 2, at: 20, until: 2000}, {no: 3, at: 30}}, []int{30, 20, 0}},
		"none with time":                {[]waits{{no: 1, late: true}, {no: 2, at: 20, until: 2000}, {no: 3, at: 30, until: 2000}}, []int{0, 20, 30}},
		"enough time":                   {[]waits{{no: 1, late: true}, {no: 2, at: 20, until: 60_000}, {no: 3, at: 30, until: 60_000}}, []int{20, 30, 0}},
		"the late one's deadline":       {[]waits{{no: 1, until: 15, late: true}, {no: 2, at: 20}}, []int{0, 20}},
		"within the late one's":         {[]waits{{no: 1, until: 25, late: true}, {no: 2, at: 20}}, []int{20, 0}},
		"came earlier, asked later":     {[]waits{{no: 3, at: 50, among: "q", came: 1}, {no: 1, at: 25, among: "q", came: 2}, {no: 2, at: 30, among: "q", came: 3}}, []int{25, 30, 50}},
		"the same, without a grant":     {[]waits{{no: 3, among: "q", came: 1}, {no: 1, at: 25, among: "q", came: 2}, {no: 2, at: 30, among: "q", came: 3}}, []int{25, 30, 0}},
		"on its way to a slot":          {[]waits{{no: 3, at: 50, among: "q", came: 1}, {no: 1, at: 19, among: "q", came: 2}, {no: 2, at: 30, among: "q", came: 3}}, []int{30, 19, 50}},
		"came later, asked later":       {[]waits{{no: 1, at: 20, among: "q", came: 1}, {no: 2, at: 30, among: "q", came: 2}}, []int{20, 30}},
		"among others":                  {[]waits{{no: 3, at: 50, among: "q", came: 1}, {no: 1, at: 20, among: "r", came: 2}, {no: 2, at: 30}, {no: 4, at: 40, among: "q", came: 2}}, []int{40, 20, 30, 50}},
		"late, among others":            {[]waits{{no: 1, at: 50, late: true}, {no: 3, at: 20, among: "q", came: 2}, {no: 2, at: 30}}, []int{30, 20, 50}},
		"granted beyond its own":        {[]waits{{no: 1, at: 50, until: 49, late: true}, {no: 2, at: 20}}, []int{20, 50}},
		"and that of another late one":  {[]waits{{no: 50, late: true}, {no: 60, at: 20}, {no: 100, at: 30, until: 3000, late: true}}, []int{20, 0, 30}},
		"two with deadlines, one first": {[]waits{{no: 1, until: 15, late: true}, {no: 2, late: true}, {no: 3, at: 20}}, []int{0, 20, 0}},
		"beside many kinds": {[]waits{
			{no: 1, at: 500, late: true}, {no: 2, at: 100}, {no: 10, at: 31, ns: 2, among: "q"}, {no: 11, at: 32, ns: 3, among: "q"},
			{no: 12, at: 33, ns: 4, among: "q"}, {no: 13, at: 34, ns: 5, among: "q"}, {no: 14, at: 35, ns: 6, among: "q"},
			{no: 15, at: 36, ns: 7, among: "q"}, {no: 16, at: 37, ns: 8, among: "q"}, {no: 17, at: 38, ns: 9, among: "q"},
		}, []int{100, 500, 31, 32, 33, 34, 35, 36, 37, 38}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.l.config[0] = script.Settings{Rate: 100, Interval: time.Second, Guard: 10 * time.Millisecond}
			d.l.clock.learn(Remote(d.remote()), d.now, d.now)
			var ws, held []*Waiter
			at := func(ms int) Local { return d.now.Add(time.Duration(ms) * time.Millisecond) }
			for _, of := range c.ws {
				w := NewWaiter([]int64{max(of.ns, 1)}, d.now, 0, of.told, false)
				if of.among != "" {
					w.Among(of.among, of.came)
				}
				if w.no, w.next = of.no, of.late; of.until > 0 {
					w.until = at(of.until)
				}
				if ws = append(ws, w); of.at == 0 {
					held = append(held, w)
					continue
				}
				w.state, w.grant, w.wakes = granted, grant{at: Remote(d.remote()) + Remote(of.at)*1000, ahead: true, due: at(of.at)}, at(of.at)
				d.l.keep(w)
			}
			d.l.out = &d.out
			held = d.l.inTurn(held, d.now)
			heard := map[*Waiter]bool{}
			for _, told := range d.out.Answers {
				heard[told.Waiter] = true
			}
			var got []int
			for i, w := range ws {
				ms := 0
				if w.state == granted {
					ms = int(w.grant.due.Sub(d.now) / time.Millisecond)
				}
				got = append(got, ms)
				if waits := slices.Contains(held, w); waits != (ms == 0) {
					t.Errorf("number %d has %d ms, and waits: %v", w.no, ms, waits)
				}
				if earlier := ms > 0 && (c.ws[i].at == 0 || ms < c.ws[i].at); heard[w] != earlier {
					t.Errorf("number %d has %d ms, had %d; it hears of that: %v", w.no, ms, c.ws[i].at, heard[w])
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
			d.l.waiting = held
			if err := d.l.Sound(); err != nil {
				t.Error(err)
			}
		})
	}
}
