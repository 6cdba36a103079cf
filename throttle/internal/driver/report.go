package driver

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/outcome"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

const (
	// reportLeast and reportMost bound how often what was accepted is reported. In between,
	// that is once in an eighth of the time for which a permit counts.
	reportLeast, reportMost = 25 * time.Millisecond, time.Second
	// maxSamples is how many samples one report has at most.
	maxSamples = 128
	// reportFor is how long a report may be repeated. An older one helps little.
	reportFor = 10 * time.Second
	// reportAgain is after how long to ask again whether a limiter adapts, if it did not.
	reportAgain = time.Second
)

// Adapt has what is observed of a limiter reported. With a zero bracket, it ends that.
func (c *Client) Adapt(name string, b script.Bracket) {
	if b.Max == 0 {
		c.reporters.remove(name)
		return
	}
	r := c.reporters.get(name, func() *reporter {
		return &reporter{
			c: c, name: name, every: 4 * reportLeast, urgent: make(chan struct{}, 1),
			keys: script.ReportKeys(script.KeysOf(name, c.ID), c.replyKey(Member{Name: name})),
		}
	})
	r.become(b)
}

// Adapts reports whether what is observed of a limiter is reported.
func (c *Client) Adapts(name string) bool {
	return c.reporters.get(name, nil) != nil
}

// Observe records what became of a request. It makes no call itself.
func (c *Client) Observe(name string, sent time.Time, o outcome.Outcome) {
	if r := c.reporters.get(name, nil); r != nil {
		r.observe(c.local(sent), o)
	}
}

// want tells a limiter that adapts about a request for more permits than it gives at once.
func (c *Client) want(name string, n int64) {
	if r := c.reporters.get(name, nil); r != nil {
		r.want(n)
	}
}

// reportersKept is how many reporters a client keeps at least, even if they are not used.
const reportersKept = 1 << 14

// reporters are those of a client, by the names of their limiters: the young were used
// lately, the old before that. The old are forgotten when there are enough young ones. A
// limit with a key may have a million values.
type reporters struct {
	mu         sync.Mutex
	young, old map[string]*reporter
}

// get returns a reporter. It makes one if there is none and make is not nil.
func (rs *reporters) get(name string, make func() *reporter) *reporter {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.young[name]; r != nil {
		return r
	}
	r := rs.old[name]
	if r == nil && make != nil {
		r = make()
	}
	if r == nil {
		return nil
	}
	if rs.young == nil || len(rs.young) >= reportersKept {
		rs.young, rs.old = map[string]*reporter{}, rs.young
	}
	rs.young[name] = r
	return r
}

func (rs *reporters) remove(name string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.young, name)
	delete(rs.old, name)
}

// reporter tells Redis what this client observes of an adaptive limiter. It has a goroutine
// as long as there is something to tell.
type reporter struct {
	c      *Client
	name   string
	keys   []string
	urgent chan struct{} // something was refused

	mu      sync.Mutex
	bracket script.Bracket
	samples []sample
	told    int64 // the limit that the API told, and for what time
	per     time.Duration
	cost    int64         // the most permits that one request took, or wants to
	longest time.Duration // the longest pause that a refusal may cause; zero: the default
	wanted  bool
	runs    bool
	every   time.Duration
	quiet   line.Local // nothing is recorded before: the limiter does not adapt
	limit   int64      // as last heard
}

// sample is how the API answered requests that were sent at about the same time.
type sample struct {
	at                line.Local
	accepted, refused int64
}

func (r *reporter) become(b script.Bracket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bracket, r.quiet = b, 0
}

func (r *reporter) observe(at line.Local, o outcome.Outcome) {
	now, n := r.c.now(), max(o.Permits, 1)
	at = min(at, now)
	r.mu.Lock()
	defer r.mu.Unlock()
	if now < r.quiet {
		return
	}
	i := len(r.samples) - 1
	if i < 0 || i < maxSamples-1 && max(at, r.samples[i].at).Sub(min(at, r.samples[i].at)) > r.every/4 {
		r.samples = append(r.samples, sample{at: at})
		i++
	}
	if o.Refused {
		r.samples[i].refused += n
	} else {
		r.samples[i].accepted += n
	}
	r.cost = max(r.cost, n)
	if o.Refused && o.MaxPause > 0 && (r.longest == 0 || o.MaxPause < r.longest) {
		r.longest = o.MaxPause
	}
	if o.Limit > 0 && o.Window > 0 {
		r.told, r.per = o.Limit, o.Window
	}
	r.begin(o.Refused)
}

// want has a request reported for which the limit is too low, unless it asks for more than
// the limit may ever be. However many such requests come, they cost no more calls than
// others.
func (r *reporter) want(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n <= r.bracket.Max && r.c.now() >= r.quiet {
		r.cost, r.wanted = max(r.cost, n), true
		r.begin(false)
	}
}

// begin has somebody report, at once if it is urgent. The mutex is held.
func (r *reporter) begin(urgent bool) {
	if !r.runs {
		r.runs = r.c.begin(r.run)
	}
	if urgent {
		select {
		case r.urgent <- struct{}{}:
		default:
		}
	}
}

// begin starts a goroutine of the client, unless the client is closed.
func (c *Client) begin(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.wg.Go(f)
	}
	return !c.closed
}

// run reports until there is nothing to report.
func (r *reporter) run() {
	for {
		r.mu.Lock()
		every := r.every
		r.mu.Unlock()
		r.wait(every)
		report, at := r.next()
		if report == nil {
			return
		}
		r.send(report, at)
	}
}

// wait waits for d, or until something was refused.
func (r *reporter) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.urgent:
	case <-r.c.ctx.Done():
	}
}

// next returns the next report and the times of its samples; nil if there is none, and then
// nobody runs.
func (r *reporter) next() (*script.Report, []line.Local) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) == 0 && !r.wanted || r.c.ctx.Err() != nil {
		r.runs = false
		return nil, nil
	}
	report, at := &script.Report{No: script.BatchNo(r.c.reports.Add(1)), Bracket: r.bracket, Told: r.told, Per: r.per, Cost: r.cost, Longest: r.longest}, make([]line.Local, 0, len(r.samples))
	for _, m := range r.samples {
		report.Seen = append(report.Seen, script.Seen{Accepted: m.accepted, Refused: m.refused})
		at = append(at, m.at)
	}
	r.samples, r.told, r.per, r.cost, r.longest, r.wanted = r.samples[:0], 0, 0, 0, 0, false
	return report, at
}

// send sends a report, and repeats it while Redis does not answer. The report counts once.
func (r *reporter) send(report *script.Report, at []line.Local) {
	began := r.c.now()
	for pause := reportLeast; ; pause = min(2*pause, reportMost) {
		now := r.c.now()
		for i := range at {
			report.Seen[i].Age = now.Sub(at[i])
		}
		ctx, cancel := context.WithTimeout(r.c.ctx, line.ServesFor)
		reply, _, err := r.c.call(ctx, script.Adapt, r.keys, report.Args())
		cancel()
		if err == nil {
			limit, span, err := script.DecodeReport(reply)
			r.heard(limit, span, err)
			return
		}
		if !script.Transient(err) || r.c.now().Sub(began) > reportFor || r.c.ctx.Err() != nil {
			return
		}
		again, cancel := context.WithTimeout(r.c.ctx, pause/2+rand.N(pause))
		<-again.Done()
		cancel()
	}
}

// heard records what Redis answered to a report.
func (r *reporter) heard(limit int64, span time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || span == 0 {
		r.quiet = r.c.now().Add(reportAgain)
		return
	}
	r.every = min(max(span/8, reportLeast), reportMost)
	if limit < r.limit {
		r.c.Changed(r.name)
	}
	r.limit = limit
}
