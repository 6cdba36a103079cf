package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	lua "github.com/yuin/gopher-lua"
)

const (
	guard   = window / 100           // a permit counts in the log for this long after the interval
	near    = 100 * time.Millisecond // a cut leaves reservations alone that are due within this time
	grain   = window / 32            // reports are grouped by this time
	buckets = 256                    // a log with more entries than this is kept in buckets
	flushed = 125 * time.Millisecond // how long a process collects responses before it reports them
)

// prelude is what learn.lua needs from prelude.lua.
const prelude = `local floor, ceil, max, min, format, match = math.floor, math.ceil, math.max, math.min, string.format, string.match
`

// ours is the rule of this module: learn.lua itself, called as adapt.lua calls it in Redis. The
// limiter around it does what the engine promises: no window of the interval and the guard has
// more grants than the limit, and grants are in the order in which they were asked for. What
// was reserved for the next 100 ms is used after a cut.
type ours struct {
	w     *world
	lua   *lua.LState
	learn *lua.LTable // the functions of learn.lua
	state *lua.LTable

	quota   int64 // in force
	even    bool
	paused  time.Duration // until then
	before  int64         // quota before the last cut
	wasEven bool
	spared  time.Duration // until then the reservations of the quota before are used

	log     []time.Duration // grants, oldest first
	waiting []func()
	pumping time.Duration // when the next grant is tried; 0: nobody waits

	reports []map[time.Duration]*[2]int // of each process: accepted and refused, by time
	timer   []bool
}

// newOurs reads learn.lua.
func newOurs(path string) func(*world) (rule, error) {
	return func(w *world) (rule, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		o := &ours{w: w, lua: lua.NewState(), reports: make([]map[time.Duration]*[2]int, w.Workers), timer: make([]bool, w.Workers)}
		if err := o.lua.DoString(prelude + string(text)); err != nil {
			return nil, err
		}
		o.learn = o.lua.Get(-1).(*lua.LTable)
		for p := range o.reports {
			o.reports[p] = map[time.Duration]*[2]int{}
		}
		c := o.lua.NewTable()
		start := max(w.Cap/10, 1)
		for name, n := range map[string]int64{"start": start, "min": 1, "max": most * w.most(), "interval": window.Microseconds(), "even": 0} {
			c.RawSetString(name, lua.LNumber(n))
		}
		o.state = o.call("fresh", c, lua.LNumber(start), micros(0)).(*lua.LTable)
		o.adopt()
		return o, nil
	}
}

// micros is a time as learn.lua counts it. Times there are above 0.
func micros(t time.Duration) lua.LNumber { return lua.LNumber((t + time.Hour).Microseconds()) }

// bucket is the number of the bucket that a time belongs to.
func bucket(t time.Duration) time.Duration { return t / ((window + guard) / buckets) }

func (o *ours) call(name string, args ...lua.LValue) lua.LValue {
	if err := o.lua.CallByParam(lua.P{Fn: o.learn.RawGetString(name), NRet: 1, Protect: true}, args...); err != nil {
		panic(fmt.Sprintf("learn.lua: %v", err)) // no answer of a simulation would be right
	}
	v := o.lua.Get(-1)
	o.lua.Pop(1)
	return v
}

// number returns a number of the state.
func (o *ours) number(name string) float64 {
	return float64(lua.LVAsNumber(o.state.RawGetString(name)))
}

func (o *ours) limit() float64 { return float64(o.quota) }

// adopt applies what the rule has decided.
func (o *ours) adopt() {
	quota, even := int64(o.number("limit")), o.call("evenly", o.state) == lua.LTrue
	if quota < o.quota {
		o.before, o.wasEven, o.spared = o.quota, o.even, o.w.now+near
	}
	o.quota, o.even = quota, even
}

func (o *ours) ask(_ int, send func()) {
	o.waiting = append(o.waiting, send)
	o.pump()
}

// pump grants what can be granted now, and plans when to try again.
func (o *ours) pump() {
	for len(o.waiting) > 0 {
		at := o.next()
		if at > o.w.now {
			if o.pumping == 0 || at < o.pumping {
				o.pumping = at
				o.w.at(at, func() {
					if o.pumping == at {
						o.pumping = 0
						o.pump()
					}
				})
			}
			return
		}
		o.log = append(o.log, o.w.now)
		if keep := int(most*o.w.most()) + 1; len(o.log) > 2*keep {
			o.log = slices.Clone(o.log[len(o.log)-keep:])
		}
		send := o.waiting[0]
		o.waiting = o.waiting[1:]
		send()
	}
}

// next is when the next grant is possible.
func (o *ours) next() time.Duration {
	at := max(o.earliest(o.quota, o.even), o.paused)
	if o.w.now < o.spared {
		if spared := o.earliest(o.before, o.wasEven); spared < o.spared {
			at = min(at, spared)
		}
	}
	return at
}

// earliest is when a limit leaves room for one more grant.
func (o *ours) earliest(quota int64, even bool) time.Duration {
	at := o.w.now
	n := len(o.log)
	if even && n > 0 {
		at = max(at, o.log[n-1]+(window+guard)/time.Duration(quota))
	}
	if int64(n) >= quota {
		at = max(at, o.log[int64(n)-quota]+window+guard)
	}
	return at
}

func (o *ours) saw(slot int, then time.Duration, out outcome) time.Duration {
	if out == failed {
		return 0
	}
	p := o.w.process(slot)
	at := then / grain * grain
	r := o.reports[p][at]
	if r == nil {
		r = new([2]int)
		o.reports[p][at] = r
	}
	r[out]++
	if out == refused {
		o.report(p)
	} else if !o.timer[p] {
		o.timer[p] = true
		o.w.at(o.w.now+flushed, func() {
			o.timer[p] = false
			o.report(p)
		})
	}
	return 0
}

// report does what a call of adapt.lua does.
func (o *ours) report(p int) {
	if len(o.reports[p]) == 0 {
		return
	}
	W := lua.LNumber((window + guard).Microseconds())
	news := o.lua.NewTable()
	news.RawSetString("now", micros(o.w.now))
	news.RawSetString("W", W)
	news.RawSetString("told", lua.LNumber(0))
	news.RawSetString("cost", lua.LNumber(1))
	news.RawSetString("longest", lua.LNumber((15 * time.Minute).Microseconds()))
	from := lua.LVAsNumber(o.call("unread", o.state, W, micros(o.w.now)))
	granted := o.lua.CreateTable(64, 0)
	first, _ := slices.BinarySearchFunc(o.log, from, func(t time.Duration, from lua.LNumber) int { return int(micros(t) - from) })
	for log := o.log[first:]; len(log) > 0; {
		n := 1
		for n < len(log) && o.quota > buckets && bucket(log[n]) == bucket(log[0]) {
			n++
		}
		granted.Append(o.list(micros(log[0]), lua.LNumber(n)))
		log = log[n:]
	}
	news.RawSetString("granted", granted)
	var times []time.Duration
	for m := range o.reports[p] {
		times = append(times, m)
	}
	slices.Sort(times)
	reports := o.lua.CreateTable(len(times), 0)
	for _, m := range times {
		r := o.reports[p][m]
		reports.Append(o.list(micros(m), lua.LNumber(r[accepted]), lua.LNumber(r[refused])))
	}
	clear(o.reports[p])
	news.RawSetString("reports", reports)
	if pause := time.Duration(lua.LVAsNumber(o.call("learn", o.state, news))) * time.Microsecond; pause > 0 {
		o.paused = max(o.paused, o.w.now+pause)
	}
	o.adopt()
	o.pumping = 0
	o.w.note()
	o.pump()
}

func (o *ours) list(numbers ...lua.LNumber) *lua.LTable {
	t := o.lua.CreateTable(len(numbers), 0)
	for _, n := range numbers {
		t.Append(n)
	}
	return t
}
