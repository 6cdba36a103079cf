package slots

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

const (
	// maxAsks and maxGives are how much one call asks for and gives back at most.
	maxAsks, maxGives = 64, 256
	// pollHeard is how often waiters ask even if they hear of nothing: a message may be lost, and
	// Redis forgets those who are silent. pollUnheard is the same without a subscription.
	pollHeard, pollUnheard = 500 * time.Millisecond, 20 * time.Millisecond
	// pollQueues is how many queues may wait before they ask less often. pollMost is the longest
	// interval then: Redis forgets those who are silent for GONE of slots.lua.
	pollQueues, pollMost = 64, time.Second
	// forgottenFor is after how long Redis takes a queue that was silent out of the line: GONE of slots.lua.
	forgottenFor = 3 * time.Second
	// retryLeast and retryMost bound how soon a call that failed is made again.
	retryLeast, retryMost = 5 * time.Millisecond, 500 * time.Millisecond
	// callLasts bounds a call.
	callLasts = 5 * time.Second
)

// run makes the queue's calls until there is nothing more to do.
func (q *queue) run() {
	q.k.busy.Add(1)
	defer q.k.busy.Add(-1)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	polled := time.Now()
	runtime.Gosched() // those who are about to ask at the same time ask together
	for {
		x, asks, gives := q.next(&polled)
		if x == nil {
			return
		}
		if len(asks)+len(gives) == 0 {
			timer.Reset(max(time.Until(polled.Add(q.poll())), time.Millisecond))
			select {
			case <-q.wake:
			case <-timer.C:
			case <-q.k.ctx.Done():
			}
			continue
		}
		out, sent, err := q.exchange(x, gives)
		q.settle(x, asks, gives, out, sent, err)
	}
}

// poll is how long waiters say nothing.
func (q *queue) poll() time.Duration {
	every := pollUnheard
	if q.k.heard.Load() {
		every = pollHeard
	}
	return min(every*time.Duration(1+q.k.busy.Load()/pollQueues), pollMost)
}

// next returns the next call, an empty one if nobody has to ask now; nil if nobody waits and
// nothing has to go back.
func (q *queue) next(polled *time.Time) (x *exchange, asks []*waiter, gives []*giving) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.order = slices.DeleteFunc(q.order, func(w *waiter) bool { return w.over })
	if now := time.Now(); len(q.order) > 0 && now.Sub(*polled) >= q.poll() {
		gone := now.Sub(*polled) > forgottenFor
		*polled = now
		for _, w := range q.toPoll(gone) {
			q.ask(w)
		}
	}
	q.asks = slices.DeleteFunc(q.asks, func(w *waiter) bool { return w.over })
	slices.SortStableFunc(q.asks, byTurn)
	asks, gives = q.asks[:min(len(q.asks), maxAsks)], q.gives[:min(len(q.gives), maxGives)]
	if len(asks)+len(gives) == 0 && len(q.order) == 0 || q.k.ctx.Err() != nil {
		q.stop()
		return nil, nil, nil
	}
	asks, gives = slices.Clone(asks), slices.Clone(gives)
	q.asks, q.gives = slices.Delete(q.asks, 0, len(asks)), slices.Delete(q.gives, 0, len(gives))
	q.no++
	x = &exchange{limits: q.limits, token: q.token, client: q.k.client, no: q.no, callKey: q.callKey()}
	for _, g := range gives {
		x.gives = append(x.gives, g.give)
	}
	for _, w := range asks {
		w.asking = false
		x.claims = append(x.claims, claim{id: w.id, no: w.no, since: w.first.Load(), made: w.made})
	}
	if len(asks)+len(gives) > 0 {
		x.apply = q.k.toApply(x.limits)
	}
	return x, asks, gives
}

// byTurn puts those first who arrived first. Those whose arrival is not known have just come. Those who are in line come last: Redis
// knows their order, and they may ask so often that nobody else could.
func byTurn(a, b *waiter) int { return cmp.Compare(a.turn(), b.turn()) }

func (w *waiter) turn() int64 {
	first := w.first.Load()
	switch {
	case w.stands:
		return math.MaxInt64
	case first == 0:
		return math.MaxInt64 - 1
	}
	return first
}

// toPoll returns who asks because nobody has for a while: those who are first in line, and some of the others in
// turn. If it was so long that Redis may have taken everybody out of the line (gone), everybody does.
func (q *queue) toPoll(gone bool) []*waiter {
	if gone || len(q.order) <= maxAsks {
		return q.order
	}
	first, rest := q.order[:maxAsks], q.order[maxAsks:]
	if q.polled >= len(rest) {
		q.polled = 0
	}
	next := rest[q.polled:min(q.polled+maxAsks/2, len(rest))]
	q.polled += len(next)
	return slices.Concat(first, next)
}

// stop ends the queue's goroutine. If the Keeper is closed, what is left is refused. The mutex is
// held.
func (q *queue) stop() {
	for _, w := range q.order {
		q.answer(w, answer{err: ErrClosed})
	}
	for _, g := range q.gives {
		g.err = ErrClosed
		close(g.done)
	}
	q.gives, q.asks, q.order, q.running = nil, nil, nil, false
	close(q.idle)
}

// exchange makes a call until Redis answers it.
func (q *queue) exchange(x *exchange, gives []*giving) (out []outcome, sent time.Time, err error) {
	wait := retryLeast
	for {
		keys, args := x.keysAndArgs()
		ctx, cancel := context.WithTimeout(q.k.ctx, callLasts)
		var reply any
		reply, sent, err = q.k.call(ctx, exchangeScript, keys, args...)
		cancel()
		if err = classify(err, len(x.limits)); err == nil {
			if out, err = x.decode(reply); err == nil {
				q.k.didApply(x.limits)
			}
		}
		q.mu.Lock()
		q.trouble = err
		if err == errOld { // Redis served a copy of it late, after others: make it a new call
			q.no++
			x.no = q.no
		}
		q.mu.Unlock()
		if err == nil || err != errOld && !transient(err) || q.k.ctx.Err() != nil || q.inVain(x, gives) {
			return out, sent, err
		}
		pause, cancel := context.WithTimeout(q.k.ctx, wait/2+rand.N(wait))
		<-pause.Done()
		cancel()
		wait = min(2*wait, retryMost)
	}
}

// inVain reports whether nobody needs the answer any more: everything that was to go back has
// ended on its own.
func (q *queue) inVain(x *exchange, gives []*giving) bool {
	if len(x.claims) > 0 {
		return false
	}
	now := time.Now()
	return !slices.ContainsFunc(gives, func(g *giving) bool { return g.dies.IsZero() || now.Before(g.dies) })
}

// settle tells Redis's answer to those concerned.
func (q *queue) settle(x *exchange, asks []*waiter, gives []*giving, out []outcome, sent time.Time, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil && q.k.ctx.Err() != nil {
		err = ErrClosed
	}
	for _, g := range gives {
		g.err = err
		close(g.done)
	}
	for i, w := range asks {
		if err != nil {
			if limit, one := ofLimit(err); one {
				w.limit.Store(int64(limit))
			}
			q.answer(w, answer{err: err})
			continue
		}
		o := out[i]
		switch {
		case o.fence != "":
			if w.over {
				q.k.supersede(holder{q, w.id})
				if q.waiting[w.id] == nil { // nobody else asks for this id
					q.give(give{w.id, o.fence, w.no}, sent.Add(o.lasts))
				}
				continue // otherwise what leave gives returns the slot, or the other waiter re-enters it
			}
			if l := newLease(q, w, o.fence, sent.Add(o.lasts), o.lasts); l != nil {
				q.answer(w, answer{lease: l})
			} else {
				q.give(give{w.id, o.fence, w.no}, sent.Add(o.lasts))
				q.answer(w, answer{err: ErrClosed})
			}
		case !w.over:
			w.first.CompareAndSwap(0, o.since)
			w.limit.Store(int64(o.limit))
			if !w.stands {
				w.stands = true
				q.standing++
				w.refused <- struct{}{}
				q.k.listen()
			}
			if o.blocked > 0 { // nobody is told when the other's lease ends
				after := min(o.blocked+time.Millisecond, pollHeard)
				if w.again == nil {
					w.again = time.AfterFunc(after, func() { q.handed(w.id) })
				} else {
					w.again.Reset(after)
				}
			}
		}
	}
}
