package line

import (
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

const (
	// herd is how many contenders are too many to ask all at once whenever the horizon moves.
	herd = 100
	// roundFrom is how long it takes at least to serve all contenders once, for them to
	// spread their requests. roundTo is over how long they spread them at most: a process may
	// fail to notice for that time that the others have gone.
	roundFrom, roundTo = 250 * time.Millisecond, 5 * time.Second
	// perCall is how much time a round allows for one call of each contender. A call takes Redis about
	// a third of it.
	perCall = 200 * time.Microsecond
)

// batchAnswered handles the result of a call for waiters. If they are not answered yet, it
// returns the call to make for them instead.
func (l *Line) batchAnswered(c *Call, r Reply, now Local) (again *Call) {
	b := c.batch
	var reply script.Reply
	err, declined := r.Err, false
	if err == nil && c.short != nil {
		var why script.Declined
		if reply, declined, why, err = c.short.Decode(r.Value); declined {
			b.declined = true
			if why == script.NoRoom {
				l.scarceUntil = r.Sent.Add(boundFor)
			}
			return l.ask(b, now, now)
		}
	} else if err == nil {
		reply, err = b.request.Decode(r.Value)
		if err == nil && reply.Status == script.All {
			if b.short == nil {
				err = script.ErrReply
			} else {
				b.short.Repeated(&reply)
			}
		}
	}
	if b.asked == 0 { // the reply to a batch is no older than the first script that may have served it
		b.asked = r.Sent
	}
	switch {
	case err == nil:
		l.settle(b, &reply, r, now)
	case r.Final || !script.Transient(err):
		l.drop(b, Answer{Err: err})
	default: // a batch whose reply was lost is repeated as it is, and charged once
		b.mayBeServed()
		l.failed(b, err, now)
		l.out.After = l.backoff(b.attempts)
		b.attempts++
		return l.ask(b, now, now.Add(l.out.After))
	}
	return nil
}

// settle distributes the reply to a batch among its waiters.
func (l *Line) settle(b *batch, r *script.Reply, of Reply, received Local) {
	sent := of.Sent
	l.trouble = nil
	l.roundTrips.add(received.Sub(sent), received)
	l.showed(r.Now, sent, received)
	switch r.Status {
	case script.OK:
	case script.Old:
		l.renew(b)
		return
	case script.Late:
		l.expired(b, received)
		return
	default:
		l.refuse(b, r, received)
		return
	}
	if !r.Short {
		if r.Base == r.Now {
			l.told.learn(r.Now, sent, received)
		} else { // Redis repeats an earlier reply: it read what it was told at that time
			l.told.learn(r.Base, b.asked, received)
		}
		l.far = b.far
	}
	unknown := l.config[0].Epoch == 0
	l.learn(r, b, received)
	switch {
	case r.Renewed:
		l.renews = r.Base + Remote(script.RenewIn(l.config).Microseconds())
	case !r.Short:
		l.renews = 0
	}
	if !b.onlyReturns() { // then a limiter may be gone
		l.confirm(b.asked, received)
	}
	if r.Contenders > 0 {
		l.contenders = r.Contenders
	}
	var held []*Waiter
	l.askAt, l.binding = 0, false
	own := l.hasOwn(received)
	for i := range b.request.Runs {
		held = append(held, l.distribute(b, i, r, of, own, received)...)
	}
	if b.turns || len(b.denied) > 0 {
		held = l.turns(b, held, received)
	}
	switch {
	case l.binding && own: // who waits gets it with the next call, before those who come later
		l.endStock(received)
		l.moveUpAt = received
	case len(held) == 0:
		l.assignStock(received)
	}
	l.assignHeld(received)
	if len(held) == 0 && len(l.waiting) > 0 {
		l.gather(l.waiting[0].ns, received)
	}
	l.waiting = append(held, l.waiting...)
	if len(held) > 0 {
		l.refuseHopeless(b, r, received)
		if l.arrivals == b.upTo {
			l.urgentAt = 0 // those whom the batch left out are behind these, and wait as they do
		}
	}
	round := l.round(b)
	if r.Contenders > 0 && len(held) == 0 && round > 0 {
		l.askAt = received.Add(round/2 + l.jitter(round)) // those who were served ask after the others
	}
	if unknown && len(held) > 0 {
		l.askAt = 0 // they were asked for before their horizon was known
	}
	l.finish(b, Answer{})
	if b.gaveBack() && !l.Around.Hears { // else Redis says so
		l.freed(received)
	}
}

// distribute gives the waiters of a run their grants, and returns those who stay in the line. own is what
// hasOwn says.
func (l *Line) distribute(b *batch, i int, r *script.Reply, of Reply, own bool, received Local) (held []*Waiter) {
	run, answer, ws := &b.request.Runs[i], &r.Runs[i], b.waiters[i]
	for _, g := range answer.Grants {
		p := grant{at: r.Base + Remote(g.Offset), epochs: r.Epochs, shared: of.Shared}
		p.earliest, p.due = l.clock.at(p.at)
		p.ahead = p.at > r.Now
		p.slow = !p.ahead && received.Sub(of.Sent) > l.halfGuard()
		chosen := p.ahead && p.at-r.Now <= Remote(run.Lead.Microseconds()) // nobody wanted them sooner
		switch {
		case chosen:
		case p.ahead:
			l.binding = true
			l.gathering.waited(p.due)
		case !run.Prefetch:
			l.gathering.handed(min(int(g.Count), len(ws)), received)
		}
		if r.Base == r.Now { // else Redis repeats an earlier reply, and much may have changed since
			p.confirm(b.asked, received, l.freshOf(&p))
		}
		if !chosen {
			l.fullUntil = p.due
		}
		if run.Prefetch {
			l.fillStock(g.Count, p, received)
			continue
		}
		l.fullFor = run.Ns
		k := min(int(g.Count), len(ws))
		if p.at != l.rankedAt {
			l.rankedAt, l.ranked = p.at, 0
		}
		for _, w := range ws[:k] {
			p.rank = l.ranked
			l.ranked++
			l.assign(w, p, received)
		}
		if more := g.Count - int64(k); more > 0 {
			l.holdMore(p, more)
			if b.waiters[i][0].state == gone {
				l.giveBackHeld()
			}
		}
		ws = ws[k:]
	}
	l.binding = l.binding || len(ws) > 0
	return l.withoutGrant(b, ws, run, answer, own, received)
}

// assign gives a waiter its grant.
func (l *Line) assign(w *Waiter, p grant, now Local) {
	w.grant = p
	switch {
	case w.state == gone:
		l.giveBack(returned{grant: p, ns: w.ns}, now)
	case l.closed:
		l.giveBack(returned{grant: p, ns: w.ns}, now)
		l.answer(w, Answer{Err: ErrClosed})
	default:
		w.state = granted
		if w.reservation || p.ahead {
			l.keep(w)
		}
		l.answer(w, Answer{})
	}
}

// withoutGrant answers the waiters of a run that got no grant, and returns those who stay in the
// line. Redis may deny them because of permits that this client has in advance (own). Then they are
// not denied, and ask again when those permits have gone back.
func (l *Line) withoutGrant(b *batch, ws []*Waiter, run *script.Run, answer *script.Outcome, own bool, received Local) []*Waiter {
	var held []*Waiter
	for _, w := range ws {
		switch {
		case w.state == gone:
		case l.closed:
			l.answer(w, Answer{Err: ErrClosed})
		case answer.Rest == script.Denied && !own && w.takesTurns():
			w.state, b.denied = queued, append(b.denied, denial{w, answer.Wait, answer.Member})
		case answer.Rest == script.Denied && !own:
			l.deny(w, answer.Wait, answer.Member)
		case answer.Rest == script.Exceeds:
			l.answer(w, exceeds(answer.Member, w.ns[answer.Member], answer.Rate))
		default:
			w.state, w.putOff = queued, true
			held = append(held, w)
		}
	}
	if len(held) > 0 && l.askAt == 0 {
		l.askAt = l.whenNext(answer.Wait, run, l.round(b), received)
	}
	return held
}

// deny tells a waiter that its permits would be due too late.
func (l *Line) deny(w *Waiter, wait time.Duration, member int) {
	l.out.Denials++
	l.answer(w, Answer{Denied: true, Wait: wait, Member: member})
}

// whenNext is when to ask again for permits that will be due in wait. That is when the
// horizon reaches them. If it was this process's share of the horizon that was used up, it is
// when half of its grants have been used, or when the permits are so near that anybody may
// reserve them, whichever comes first. It is after a window, or a minute if that is longer, at the
// latest: reservations may go back meanwhile, and not all of these are announced. The jitter lets
// processes take turns, within a round if that is long.
func (l *Line) whenNext(wait time.Duration, run *script.Run, round time.Duration, received Local) Local {
	horizon := l.horizon(run.Ns)
	at := received.Add(wait - run.Reach)
	if wait <= run.Reach {
		at = received.Add(wait - run.Near)
		if ws := l.byDue(); len(ws) > 0 {
			at = min(at, ws[len(ws)/2].grant.due)
		}
	}
	at = min(at, received.Add(max(l.Span(), time.Minute)))
	return max(at, received.Add(time.Millisecond)).Add(l.jitter(max(horizon/16, round)))
}

// round is over how long contenders spread their requests. If all of a large fleet asked whenever
// the horizon moves, Redis could do nothing else. A round is at least the time in which the limit
// gives one permit to each of them. It is longer if Redis needs longer for their calls (perCall),
// but not longer than the limit takes to give each of them as much as this batch asks for. It is
// zero for small fleets, and for those that the limit serves soon.
func (l *Line) round(b *batch) time.Duration {
	if l.contenders < herd {
		return 0
	}
	var one, all time.Duration
	for i, s := range l.config {
		if s.PerClient { // nobody contends for it
			continue
		}
		one = max(one, s.PerPermit(l.contenders))
		all = max(all, s.PerPermit(l.contenders*b.permits(i)))
	}
	d := max(one, min(all, time.Duration(l.contenders)*perCall))
	if d < roundFrom {
		return 0
	}
	return min(d, roundTo)
}

// learn records what a reply says about the configuration. Grants of an older one are asked
// for again. (Within one epoch it is still the same configuration: perhaps a pause that is
// over was taken out of it.)
func (l *Line) learn(r *script.Reply, b *batch, now Local) {
	changed := false
	for i, s := range r.Changed {
		if s != nil {
			changed = changed || l.config[i].Epoch != 0 && l.config[i].Epoch != s.Epoch
			l.config[i] = *s
		}
	}
	if !b.onlyReturns() {
		l.heard(b.asked, b.doubts)
	}
	if changed {
		l.replace(now)
	}
}
