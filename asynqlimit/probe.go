package asynqlimit

import (
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

const (
	// probeFirst and probeMost bound the time between two tries of a job that could not run as
	// things stood. A try that finds no job to call is made again once, sooner.
	probeFirst = 2 * time.Second
	probeMost  = 30 * time.Second
	// openBatch is how many jobs at most are called within openEvery from a line that has opened.
	openBatch = 500
	openEvery = 200 * time.Millisecond
	// probeApart is the average time between tries of different lines, and probesAtOnce is how
	// many may come together. Types come from producers, and with many types the tries alone
	// would overload Redis and the workers.
	probeApart   = 2 * time.Millisecond
	probesAtOnce = 50
)

// tries limits the rate of tries of all lines of a process.
type tries struct{ next time.Time }

func (t *tries) allow(now time.Time) bool {
	if t.next.Sub(now) >= probesAtOnce*probeApart {
		return false
	}
	if t.next.Before(now) {
		t.next = now
	}
	t.next = t.next.Add(probeApart)
	return true
}

// probe decides how many jobs to call from a line of jobs that cannot run as things stand. Each
// process tries one job on its own, at its start and then less and less often. When one passes,
// others follow, as many as keep passing: jobs that still cannot run do not hold back those that
// can.
type probe struct {
	next           time.Time     // when the line is visited next
	pause          time.Duration // until the visit after that, if nothing passes
	batch          int
	left           int  // of a batch of more than one, to be called as there is capacity for them
	passed, failed int  // of this process, since the last batch
	again          bool // the last visit found no job that could be called, and so the next one came sooner
}

// opens reports whether one job has passed, so that others are to follow.
func (p *probe) opens() bool { return p.passed > 0 || p.batch > 1 }

// allowance returns how many jobs to call now: one, or of a line that has opened what is left of a batch.
// A line of which none has passed has to wait until tries allows it.
func (p *probe) allowance(now time.Time, of *tries) int {
	if now.Before(p.next) {
		return p.left
	}
	if !p.opens() && !of.allow(now) {
		return 0
	}
	switch {
	case p.passed > p.failed:
		p.batch = min(max(p.batch*4, 4), openBatch)
	case p.failed > 0:
		p.batch /= 4
	}
	p.batch = max(p.batch, 1)
	if p.batch > 1 {
		p.pause, p.next, p.left = 0, now.Add(openEvery), p.batch
	} else {
		p.left = 0
		p.pause = min(max(p.pause*2, probeFirst), probeMost)
		p.next = now.Add(p.pause)
	}
	p.passed, p.failed = 0, 0
	return p.batch
}

// called notes how many of the jobs for which there was an allowance were called. If a try called
// none, most probably because all that the visit found had parked just now, it is made again as
// soon as they can be called, once.
func (p *probe) called(jobs int64, now time.Time) {
	if p.again = jobs == 0 && p.batch == 1 && !p.again; p.again && p.next.After(now.Add(line.Settled)) {
		p.next, p.pause = now.Add(line.Settled), p.pause/2
	}
}

// saw notes whether a job of the line could run. After the first that passes, the next visit
// comes soon.
func (p *probe) saw(passed bool, now time.Time) {
	if !passed {
		p.failed++
		return
	}
	if p.passed++; p.next.After(now.Add(openEvery)) {
		p.next = now.Add(openEvery)
	}
}
