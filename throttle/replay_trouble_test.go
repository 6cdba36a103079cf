package throttle

import (
	"fmt"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// operate changes limits now and then, from one of the processes.
func (r *replayed) operate(every time.Duration) {
	if r.ended {
		return
	}
	r.after(time.Duration(r.random.Int64N(int64(every))), func() {
		if r.ended {
			return
		}
		p, sl := r.procs[r.random.IntN(len(r.procs))], r.limits[r.random.IntN(len(r.limits))]
		changed := drawRate(r.random)
		if r.random.IntN(3) == 0 {
			changed = sl.rate
			changed.Permits = max(1, changed.Permits/2)
		}
		if !sl.resets {
			changed.Type = sl.rate.Type // a change of type forgets
			if changed.KeepAlive = sl.rate.KeepAlive; changed.KeepAlive > 0 {
				changed.KeepAlive = max(changed.KeepAlive, changed.Interval)
			}
		}
		set := func(mode string) (string, []any) {
			args := []any{mode}
			for _, f := range changed.fields() {
				args = append(args, f)
			}
			return "set", args
		}
		d := r.random.Int64N(3_000_000)
		var name string
		var args []any
		what := r.random.IntN(14)
		if r.ample && what > 0 {
			what = 9 // only inspected
		}
		least := p.clock.Least(r.local())
		if r.steps {
			if least == 0 {
				r.operate(every) // a client that knows nothing of the time takes what was used for reservations
				return
			}
			what = 4 + what%4 // pauses and their ends: then only what callers see is judged
		}
		switch {
		case what < 4:
			name, args = set("update")
		case what < 7:
			name, args = "pause", []any{d + 1, ""}
		case what < 8:
			name, args = "pause", []any{0, ""}
		case what < 9:
			name, args = set("try")
		case !sl.resets || what < 10:
			name = "inspect"
		case what < 11:
			name, args = set("set")
		case what < 12:
			name = "delete"
		case what < 13:
			name, args = "expire", []any{d/1000 + 1}
		default: // ClearExpire
			name, args = "expire", []any{0}
		}
		keys := script.KeysOf(sl.name, p.name)
		m := message{name, keys[:], args}
		if name != "inspect" {
			m.keys = append(m.keys, fmt.Sprintf("%s:reply:%s:%d", script.Prefix(sl.name), p.name, r.no))
			m.args = append([]any{r.now() + 10_000_000, int64(least)}, args...)
		}
		p.send(r, m, func(any, error) { r.changed(p, sl.name, line.Doubt) })
		r.operate(every)
	})
}

// changed tells the lines that hear of it: those of the process that did it at once.
func (r *replayed) changed(by *simulatedProcess, name string, what line.Kind) {
	for _, l := range r.lines {
		if !slices.Contains(l.names, name) || l.p != by && !l.p.hears {
			continue
		}
		d := time.Duration(0)
		if l.p != by {
			d = l.p.way
		}
		r.after(d, func() { l.step(line.Event{Kind: what}) })
	}
}

// disturb crashes a process, stops some for a while, and sets Redis's clock.
func (r *replayed) disturb() {
	every := r.length / 3
	if r.ample {
		every = r.length / 12
	}
	if r.steps {
		every = 1500 * time.Millisecond
	}
	r.after(time.Duration(r.random.Int64N(int64(every))), func() {
		if r.ended {
			return
		}
		p := r.procs[r.random.IntN(len(r.procs))]
		switch r.random.IntN(7) {
		case 0:
			r.leaves(p)
		case 6:
			r.spoil(p)
		case 1, 2, 3:
			r.outage(p)
		default:
			r.disturbOnce(r.random)
		}
		r.disturb()
	})
}

// spoil writes, where a process has a cached value or a last reply, what makes no sense there. Nobody believes it, and nobody
// is stopped by it.
func (r *replayed) spoil(p *simulatedProcess) {
	sl := r.limits[r.random.IntN(len(r.limits))]
	keys := script.KeysOf(sl.name, p.name)
	for _, key := range []string{keys[1], keys[3]} {
		if lives := r.redis.TTL(key); r.redis.Exists(key) {
			check(r, r.redis.Set(key, []string{"999999999999999", "1e300", "x", "-1e300"}[r.random.IntN(4)]))
			if lives > 0 {
				r.redis.SetTTL(key, lives)
			}
		}
	}
	for _, l := range r.lines {
		if key := l.reply(); l.p == p && r.redis.Exists(key) && r.random.IntN(2) == 0 {
			check(r, r.redis.Set(key, "999999999999999 0"))
			r.count["replies spoilt"]++
		}
	}
	r.note("%s, %s: a value, and replies, make no sense", p.name, sl.name)
}

// outage takes Redis away for a while, unless all goes well in this fleet.
func (r *replayed) outage(p *simulatedProcess) {
	if p.faults == 0 {
		return
	}
	r.away, r.refuses = time.Now().Add(time.Duration(r.random.Int64N(int64(3*time.Second)))), r.random.IntN(2) == 0
	r.note("Redis is away for %v", time.Until(r.away))
}

// leaves ends a process in good order, whoever waits in it: it closes its Client. The first process stays.
func (r *replayed) leaves(p *simulatedProcess) {
	if p.no == 0 || p.left || p.dead() || r.ended {
		return
	}
	p.left = true
	r.note("%s: closed", p.name)
	for _, l := range r.lines {
		if l.p != p {
			continue
		}
		for _, a := range l.order {
			if a.away { // a reservation that nobody comes for counts as used
				a.mayCount()
			}
		}
		l.step(line.Event{Kind: line.Close})
	}
}
