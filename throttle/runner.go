package throttle

import (
	"context"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pollShare spreads what waiting processes ask about the configuration:
	// together about one look in this time, each at most every pollTo. Those
	// that hear of changes look every pollHeard, in case they did not.
	pollShare = 30 * time.Millisecond
	pollTo    = 500 * time.Millisecond
	pollHeard = time.Second
)

// kick starts a runner unless there is one.
func (q *queue) kick() {
	if q.running || q.closed {
		return
	}
	q.running = true
	if q.timer != nil {
		q.timer.Stop()
	}
	q.c.wg.Go(q.run)
}

// run makes calls as long as there is something to ask, then sets the timer
// for what is to be asked later.
func (q *queue) run() {
	runtime.Gosched() // who is about to ask, or to give back, because others of the same moment are, comes first
	for {
		q.mu.Lock()
		now := time.Now()
		q.moveUpNow(now)
		switch {
		case !q.c.met.Load() && !q.closed:
			q.mu.Unlock()
			q.meet()
		case len(q.releases)+len(q.returns) > 0 && !q.closed && !q.clock.known && q.heardAt.IsZero():
			// What is given back must not be given back twice: its batch says until when
			// it may be served, which takes a clock.
			q.mu.Unlock()
			q.check()
		case q.toAsk(now):
			b, stop := q.nextBatch(now), q.lookBeside(now)
			q.mu.Unlock()
			q.send(b)
			stop()
		case q.toCheck(now):
			stop := q.lookBeside(now)
			q.mu.Unlock()
			q.check()
			stop()
		default:
			q.rest(now)
			q.mu.Unlock()
			return
		}
	}
}

// rest has nobody make calls until there is something to ask.
func (q *queue) rest(now time.Time) {
	q.running = false
	if q.closed {
		close(q.stopped)
	} else {
		q.arm(now)
	}
}

// toAsk reports whether there is a batch to send now.
func (q *queue) toAsk(now time.Time) bool {
	if len(q.front)+len(q.returns)+len(q.releases) > 0 {
		return true
	}
	return len(q.waiting) > 0 && !now.Before(q.nextAsk())
}

// nextAsk is when those in the queue are to be asked for.
func (q *queue) nextAsk() time.Time {
	at := q.askAt
	if !q.urgentAt.IsZero() {
		at = earlier(at, q.urgentAt)
	}
	return later(at, q.gathering.until)
}

// toCheck reports whether it is time to look at the configuration.
func (q *queue) toCheck(now time.Time) bool {
	if q.closed {
		return false
	}
	at, ok := q.checkAt(now)
	return ok && !now.Before(at)
}

// checkAt is when the configuration must be looked at: at once for a place
// that is due and unconfirmed, shortly before the next place that falls due
// more than freshFor after the last answer (the longer before, the longer a call
// takes at present), and now and then for waiters whose turn is far. Of the places
// that nobody has come for in time it finds none any more.
func (q *queue) checkAt(now time.Time) (time.Time, bool) {
	at, lead := q.heardAt.Add(q.pollEvery()), q.checkLead()
	for w := range q.placed {
		if w.state == checking {
			return time.Time{}, true
		}
		if q.left(w, now) {
			q.letGo(w)
			continue
		}
		if before := w.place.due.Add(-lead); before.Before(at) && w.place.due.Sub(q.heardAt) >= q.fresh() {
			at = before
		}
	}
	return at, len(q.placed)+len(q.waiting)+len(q.front) > 0
}

// checkLead is how long before a place falls due the configuration is looked at.
func (q *queue) checkLead() time.Duration {
	return min(max(4*q.roundTrips.least(), 2*q.roundTrips.median(), 5*time.Millisecond), q.fresh()*9/10)
}

func (q *queue) pollEvery() time.Duration {
	if q.c.changes.heard.Load() {
		return max(pollHeard, time.Duration(q.contenders)*pollShare/15)
	}
	return min(max(freshFor, time.Duration(q.contenders)*pollShare), pollTo)
}

// arm sets the timer for the next call that is not needed yet.
func (q *queue) arm(now time.Time) {
	at, ok := q.checkAt(now)
	if ask := q.nextAsk(); len(q.waiting) > 0 && (!ok || ask.Before(at)) {
		at, ok = ask, true
	}
	if !q.moveUpAt.IsZero() && ok {
		at = earlier(at, q.moveUpAt)
	}
	if !ok {
		return
	}
	q.c.listen()
	if q.timer == nil {
		q.timer = time.AfterFunc(at.Sub(now), q.wake)
	} else {
		q.timer.Reset(at.Sub(now))
	}
}

func (q *queue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.kick()
}

// check reads the epochs. If one is not what the places were granted under,
// all of them are asked for anew.
func (q *queue) check() {
	q.mu.Lock()
	doubts := q.doubts
	q.mu.Unlock()
	first := !q.c.met.Load()
	reply, sent, err := q.eval(q.c.ctx, epochScript, q.names())
	if err != nil && !transient(err) { // the next batch tells everybody
		q.mu.Lock()
		defer q.mu.Unlock()
		q.replace()
		q.askAt, q.heardAt = time.Time{}, sent
		return
	}
	if err != nil {
		q.failed(nil, err)
		q.backoff(q.failures)
		q.failures++
		return
	}
	q.failures = 0
	q.looked(reply, sent, doubts, first)
}

func (q *queue) names() []string {
	names := make([]string, len(q.members))
	for i, l := range q.members {
		names[i] = l.name
	}
	return names
}

// looked takes up what a look at the configuration told, which was sent then, as
// of so many doubts.
func (q *queue) looked(reply any, sent time.Time, doubts uint64, first bool) {
	text, _ := reply.(string)
	received := time.Now()
	d := decoder{rest: text}
	now, same := d.next(), true
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	if doubts != q.doubts || sent.Before(q.heardAt) {
		q.trouble = nil
		return // more is known by now, or nothing for certain
	}
	for i := range q.members {
		same = d.next() == q.config[i].epoch && same
	}
	q.trouble = nil
	if !first { // which connects
		q.roundTrips.add(received.Sub(sent), received)
	}
	if d.err != nil || !same {
		if d.err == nil {
			q.clock.learn(now, sent, received)
		}
		q.replace()
		q.askAt = time.Time{}
		q.heardAt = sent // what follows is a batch, which tells the rest
		return
	}
	q.heard(sent, doubts)
	if q.clock.least(sent)-now >= q.span().Microseconds() {
		// Redis's clock was set back. The places are further ahead than anybody
		// should wait: the next batch tells Redis so (set_back in entries.lua).
		q.replace()
		q.askAt = time.Time{}
		return
	}
	q.clock.learn(now, sent, received)
	q.confirm(sent, received)
}

// confirm takes up that the configuration was still that of all places when a
// request was sent, and lets those go on who waited to know.
func (q *queue) confirm(sent, received time.Time) {
	for w := range q.placed {
		w.place.confirm(sent, received, q.fresh())
		if w.state == checking {
			w.state = placed
			q.answer(w, outcome{})
		}
	}
}

// replace asks for all places anew, in the order of their turns. A change has
// dropped them from the log of the limiter that changed; the script takes them out
// of those of a group that did not. What is left of a stock is of no use either.
func (q *queue) replace() {
	q.stock.left = 0
	for _, w := range q.inTurn() {
		if len(q.members) > 1 {
			q.returns = append(q.returns, returned{place: w.place, ns: w.ns, by: w})
		}
		q.again(w)
	}
}

// send sends a batch until it is answered: a batch whose reply was lost is
// repeated as it is, and charged once.
func (q *queue) send(b *batch) {
	for attempt := 0; ; attempt++ {
		err := q.attempt(q.c.ctx, b)
		if err == nil {
			return
		}
		if !transient(err) || q.c.ctx.Err() != nil {
			q.drop(b, err)
			return
		}
		q.failed(b, err)
		q.backoff(attempt)
	}
}

// attempt sends a batch once, and settles it if it is answered.
func (q *queue) attempt(ctx context.Context, b *batch) error {
	reply, sent, err := q.ask(ctx, b)
	if err != nil {
		return err
	}
	r, err := decodeBatch(reply, len(q.members), len(b.runs))
	if err != nil {
		return err
	}
	if r.status == statusAll {
		if b.fast == nil {
			return badReply("status %d to acquire.lua", r.status)
		}
		b.fast.granted(&r)
	}
	q.settle(b, r, sent, time.Now())
	return nil
}

// ask makes the call, the fast way if that may do, and says when it was sent.
func (q *queue) ask(ctx context.Context, b *batch) (reply any, sent time.Time, err error) {
	recent := b.first.IsZero() || time.Since(b.first) < freshFor // else what fast.lua did not look at may be long ago
	if f := b.fast; f != nil && !f.declined && recent {
		b.sent()
		reply, sent, err = q.eval(ctx, fastScript, f.keys, f.args...)
		why, declined := reply.(int64)
		if !declined {
			b.answeredBy(sent)
			return f.reply(reply), sent, err
		}
		f.declined = true
		if why == declinedRoom {
			q.mu.Lock()
			q.scarceUntil = sent.Add(boundFor)
			q.mu.Unlock()
		}
	}
	if now := b.sent(); b.args == nil {
		b.args = q.arguments(b, now)
	}
	reply, sent, err = q.eval(ctx, acquireScript, q.keys, b.args...)
	b.answeredBy(sent)
	return reply, sent, err
}

// eval is Client.evalAt, and notes since when the queue waits for an answer.
func (q *queue) eval(ctx context.Context, s *redis.Script, keys []string, args ...any) (any, time.Time, error) {
	q.callingSince.Store(time.Now().UnixNano())
	defer q.callingSince.Store(0)
	return q.c.evalAt(ctx, s, keys, args...)
}

// drop ends a batch that Redis will never serve.
func (q *queue) drop(b *batch, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.c.ctx.Err() != nil {
		err = ErrClosed
	}
	for _, w := range b.flying() {
		q.answer(w, outcome{err: q.error(0, err)})
	}
	b.finish(q.error(0, err))
}
