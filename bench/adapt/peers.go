package main

import (
	"math"
	"time"
)

// most is the highest limit of each rule that has one, as a multiple of the API's limit.
// Somebody who does not know the limit cannot set it closer than this.
const most = 4

// tokens is a token bucket of one process, for which requests queue up.
type tokens struct {
	w       *world
	rate    float64 // a second
	burst   float64
	left    float64
	at      time.Duration
	waiting []func()
	planned int // the number of the latest plan to try again
}

func (t *tokens) refill() {
	t.left = min(t.left+(t.w.now-t.at).Seconds()*t.rate, t.burst)
	t.at = t.w.now
}

// set changes the bucket. Tokens up to now came at the old rate.
func (t *tokens) set(rate, burst float64) {
	t.refill()
	t.rate, t.burst = rate, burst
	t.left = min(t.left, burst)
	t.pump()
}

func (t *tokens) take(send func()) {
	t.waiting = append(t.waiting, send)
	t.pump()
}

func (t *tokens) pump() {
	t.refill()
	for len(t.waiting) > 0 {
		if t.left < 1-1e-9 {
			t.planned++
			plan := t.planned
			t.w.at(t.w.now+time.Duration((1-t.left)/t.rate*float64(time.Second))+1, func() {
				if plan == t.planned {
					t.pump()
				}
			})
			return
		}
		t.left--
		send := t.waiting[0]
		t.waiting = t.waiting[1:]
		send()
	}
}

// aws is the adaptive mode of AWS's SDKs, as botocore has it. Each client has a token bucket
// from its first refusal on. Its rate is a cubic function of the time since the last refusal.
// Each refusal multiplies the rate by 0.7. The client measures its own rate every half second,
// and never sets more than twice that rate. A refused request is tried again after a random
// part of 1, 2, 4 ... seconds.
type aws struct {
	clients  []*awsClient
	attempts map[int]int // of each slot: how many were refused so far
}

type awsClient struct {
	w        *world
	bucket   tokens
	enabled  bool
	wMax     float64
	lastFail time.Duration
	measured float64
	count    float64
	slice    time.Duration // in which count was counted
}

const awsBeta, awsScale, awsSmoothing, awsMinRate, awsTries = 0.7, 0.4, 0.8, 0.5, 5

func newAWS(w *world) (rule, error) {
	a := &aws{attempts: map[int]int{}}
	for range w.Workers {
		a.clients = append(a.clients, &awsClient{w: w, bucket: tokens{w: w, rate: 1, burst: 1}})
	}
	return a, nil
}

func (a *aws) ask(slot int, send func()) {
	if c := a.client(slot); c.enabled {
		c.bucket.take(send)
	} else {
		send()
	}
}

// cubic is the rate that many seconds after a refusal at the rate wMax.
func cubic(after, wMax float64) float64 {
	k := math.Cbrt(wMax * (1 - awsBeta) / awsScale)
	return awsScale*math.Pow(after-k, 3) + wMax
}

func (a *aws) client(slot int) *awsClient { return a.clients[slot%len(a.clients)] }

func (a *aws) saw(slot int, _ time.Duration, o outcome) time.Duration {
	c := a.client(slot)
	c.measure()
	rate := 0.
	if o == refused {
		used := c.measured
		if c.enabled {
			used = min(used, c.bucket.rate)
		}
		c.wMax, c.lastFail, c.enabled = used, c.w.now, true
		rate = used * awsBeta
	} else {
		rate = cubic((c.w.now - c.lastFail).Seconds(), c.wMax)
	}
	rate = min(rate, 2*c.measured)
	c.bucket.set(max(rate, awsMinRate), max(rate, 1))
	if o != refused {
		a.attempts[slot] = 0
		return 0
	}
	a.attempts[slot] = a.attempts[slot]%awsTries + 1 // after the last try the slot has another job
	return time.Duration(c.w.random.Float64() * min(math.Pow(2, float64(a.attempts[slot]-1)), 20) * float64(time.Second))
}

// measure counts a response.
func (c *awsClient) measure() {
	const half = 500 * time.Millisecond
	slice := c.w.now / half * half
	c.count++
	if slice > c.slice {
		c.measured = c.count/(slice-c.slice).Seconds()*awsSmoothing + c.measured*(1-awsSmoothing)
		c.count, c.slice = 0, slice
	}
}

func (a *aws) limit() (sum float64) {
	for _, c := range a.clients {
		if !c.enabled {
			return 0
		}
		sum += c.bucket.rate
	}
	return sum
}

// loki is the congestion control of Loki's object storage clients. Each process has a token
// bucket as deep as its rate is high. A success adds one to the rate, a refusal halves it. A
// caller that waits checks for a token every 10 ms, so it gets one up to 10 ms late.
type loki struct{ buckets []*tokens }

func newLoki(w *world) (rule, error) {
	l := &loki{}
	start := math.Max(math.Floor(float64(w.Cap)/10/float64(w.Workers)), 1)
	for range w.Workers {
		l.buckets = append(l.buckets, &tokens{w: w, rate: start, burst: start, left: start})
	}
	return l, nil
}

func (l *loki) bucket(slot int) *tokens { return l.buckets[slot%len(l.buckets)] }

func (l *loki) ask(slot int, send func()) {
	b := l.bucket(slot)
	b.refill()
	if b.left >= 1 && len(b.waiting) == 0 {
		b.left--
		send()
		return
	}
	b.take(func() { b.w.at(b.w.now+time.Duration(b.w.random.Int64N(int64(10*time.Millisecond))), send) })
}

func (l *loki) saw(slot int, _ time.Duration, o outcome) time.Duration {
	if o == failed {
		return 0 // it retries some of these and learns nothing
	}
	b := l.bucket(slot)
	rate := b.rate
	if o == accepted {
		rate = min(rate+1, most*float64(b.w.most()))
	} else {
		rate = math.Ceil(max(1, rate*0.5))
	}
	b.set(rate, rate)
	return 0
}

func (l *loki) limit() (sum float64) {
	for _, b := range l.buckets {
		sum += b.rate
	}
	return sum
}

// rudder is RudderStack's adaptive throttler. Its limit is a part of the highest limit, and
// begins at all of it. When more than a tenth of the responses of a window were refusals, the
// limit falls by 0.3 of their share, and the next window does not count. After two windows
// without a refusal it rises by a tenth. Each process has a share of the highest limit.
type rudder struct{ processes []*rudderProcess }

type rudderProcess struct {
	w              *world
	bucket         tokens
	highest        float64
	factor         float64
	refused, total int
	sinceRise      int // refusals since the limit last rose or was checked
}

func newRudder(w *world) (rule, error) {
	r := &rudder{}
	for range w.Workers {
		highest := max(most*float64(w.most())/float64(w.Workers), 1)
		p := &rudderProcess{w: w, highest: highest, factor: 1, bucket: tokens{w: w, rate: highest, burst: highest, left: highest}}
		r.processes = append(r.processes, p)
		phase := time.Duration(w.random.Int64N(int64(window))) // processes do not begin at the same time
		w.at(phase+window, p.fall)
		w.at(phase+2*window, p.rise)
	}
	return r, nil
}

func (p *rudderProcess) fall() {
	share := float64(p.refused) / float64(max(p.total, 1))
	p.refused, p.total = 0, 0
	next := window
	if share > 0.1 {
		p.set(p.factor - 0.3*share)
		p.w.at(p.w.now+window, func() { p.refused, p.total = 0, 0 })
		next = 2 * window
	}
	p.w.at(p.w.now+next, p.fall)
}

func (p *rudderProcess) rise() {
	if p.sinceRise == 0 {
		p.set(p.factor + 0.1)
	}
	p.sinceRise = 0
	p.w.at(p.w.now+2*window, p.rise)
}

func (p *rudderProcess) set(factor float64) {
	p.factor = min(max(factor, 0), 1)
	limit := max(p.highest*p.factor, 1)
	p.bucket.set(limit, limit)
	p.w.note()
}

func (r *rudder) process(slot int) *rudderProcess { return r.processes[slot%len(r.processes)] }

func (r *rudder) ask(slot int, send func()) { r.process(slot).bucket.take(send) }

func (r *rudder) saw(slot int, _ time.Duration, o outcome) time.Duration {
	p := r.process(slot)
	p.total++
	if o == refused {
		p.refused++
		p.sinceRise++
	}
	return 0
}

func (r *rudder) limit() (sum float64) {
	for _, p := range r.processes {
		sum += p.bucket.rate
	}
	return sum
}
