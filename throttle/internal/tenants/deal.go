package tenants

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/fair"
	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Decision is what a reply means for those who wait.
type Decision struct {
	Pass []*Waiter     // go on to the limiter's line, in this order
	Deny []*Waiter     // their permits come too late
	Wait time.Duration // until there is room for anybody, at the earliest
}

// mine is those of a tenant who wait in one client.
type mine struct {
	client string
	script.WaitingTenant
}

// share is a tenant that waits, here or elsewhere.
type share struct {
	fair.Tenant
	name  string
	parts []mine
}

// Answer takes in Redis's reply to a call that was sent at the time sent. If found is false there
// is no limiter.
func (l *Line) Answer(now, sent line.Local, r *script.TenantReply, found bool) (d Decision) {
	l.calling, l.trouble, l.retries, l.paid, l.owedV = false, nil, 0, nil, 0
	took := now.Sub(sent)
	l.roundTrip = max(took, l.roundTrip-(l.roundTrip-took)/8)
	l.answered = sent
	tries := l.tries
	l.tries = nil
	if !found {
		d.Pass = l.unset(now)
		if l.create { // the limiter's line finds out what they get of the limiter that the first creates
			for _, w := range tries {
				if w.state == waits {
					l.remove(w)
					d.Pass = append(d.Pass, l.pass(w))
				}
			}
		}
	} else {
		l.v = r.V
		learned := false // that tenants have got more than was known here: others may come before them
		for name, tag := range r.Tags {
			if t := l.tenants[name]; t != nil {
				learned = learned || tag.Finish > max(t.finish, l.v)
				t.finish = tag.Finish
			}
		}
		d.Pass = append(l.never(r.Rate), l.deal(now, r)...)
		if len(d.Pass) == 0 && learned && l.rest && r.Room > l.out {
			l.hurries = true
		}
		d.Deny = l.late(now, r.Free)
		d.Wait = max(r.Free, l.gap())
		l.nextAt = now.Add(min(max(r.Free-l.soon(), 0), checkMost))
	}
	l.inCall = l.inCall[:0]
	d.Deny = append(d.Deny, l.drop(tries)...)
	l.binds = l.waiting > 0
	return d
}

// unset returns who goes on if there is no limiter: everybody, to learn that, or one, who creates
// it.
func (l *Line) unset(now line.Local) (pass []*Waiter) {
	l.nextAt = now.Add(l.gap())
	if !l.create {
		for _, w := range l.all() {
			l.remove(w)
			pass = append(pass, l.pass(w))
		}
		return pass
	}
	var first *Waiter
	for _, t := range l.tenants {
		if w := t.head(); l.out == 0 && (first == nil || w.since < first.since || w.since == first.since && w.tenant < first.tenant) {
			first = w
		}
	}
	if first == nil {
		return nil
	}
	l.remove(first)
	return append(pass, l.pass(first))
}

// pass lets a request go on that was taken out of its line, and charges its tenant.
func (l *Line) pass(w *Waiter) *Waiter {
	w.state = passed
	l.charge(w.tenant, w.cost)
	l.out += w.cost
	l.held += w.cost
	return w
}

// never returns the requests for more than the limit ever gives: the limiter's line denies them.
func (l *Line) never(rate int64) (pass []*Waiter) {
	of := l.inCall
	if rate < l.rate { // earlier requests as well
		of = l.all()
	}
	l.rate = rate
	for _, w := range of {
		if w.state == waits && w.cost > rate {
			l.remove(w)
			pass = append(pass, l.pass(w))
		}
	}
	return pass
}

// late returns the requests whose time ends before there is room for anybody.
func (l *Line) late(now line.Local, free time.Duration) []*Waiter {
	return l.drop(slices.DeleteFunc(l.inCall, func(w *Waiter) bool {
		return w.until == 0 || w.until >= now.Add(free)
	}))
}

// deal returns who goes on, as far as there is room. The virtual time does not pass the start tag
// of anybody who still waits: otherwise, where a request costs more or less than expected, others
// would lose permits that they are due.
func (l *Line) deal(now line.Local, r *script.TenantReply) (pass []*Waiter) {
	shares, room, most := l.shares(r)
	tenants := make([]fair.Tenant, len(shares))
	jobs, left := int64(0), room
	for i, s := range shares {
		tenants[i] = s.Tenant
		jobs, left = jobs+s.Jobs, left-s.Jobs*s.Cost
	}
	l.credit = 0
	if left >= 2*r.Pace {
		l.credit, l.creditEnds = r.Pace, now.Add(2*l.gap())
	}
	if len(shares) == 0 || room <= 0 {
		return nil
	}
	got, after := fair.Deal(r.V, tenants, room, jobs, most)
	for i, s := range shares {
		room -= got[i]
		next := s.Start(r.V) + float64(got[i])/s.Weight
		if t := l.tenants[s.name]; t != nil && got[i] > 0 {
			t.finish = s.Start(r.V)
			for n := s.part(l.client, got[i]); n > 0 && t.line.Len() > 0; {
				w := t.head()
				l.remove(w)
				pass = append(pass, l.pass(w))
				n -= w.cost
				t.finish += float64(w.cost) / s.Weight
			}
			next = min(next, t.finish)
		}
		if !s.waitsAt(l.client) { // those who wait elsewhere have not taken it yet
			next = s.Start(r.V)
		} else if got[i] >= s.Jobs*s.Cost {
			continue
		}
		after = min(after, next)
	}
	if len(pass) > 0 {
		l.owedV = min(after, most)
		l.hurries = room > 0 && l.waiting > 0
	}
	return pass
}

// maxJobs is how many requests of a tenant in one client count at most.
const maxJobs = 1 << 20

// shares returns the tenants that wait, here or elsewhere, in an order that is the same
// everywhere, the permits to be dealt among them, and the highest start tag that may be served.
func (l *Line) shares(r *script.TenantReply) (shares []*share, room int64, most float64) {
	byName := map[string]*share{}
	room = r.Room
	out, held := int64(0), int64(0)
	most = -1
	for _, c := range r.Clients {
		if c.Client == l.client {
			c.Out, c.Held = l.out, l.held
		}
		out, held = out+c.Out, held+c.Held
		if rest := c.Rest; rest >= 0 && (most < 0 || rest < most) {
			most = rest
		}
		for _, w := range c.Tenants {
			if c.Client == l.client { // some have come since, or have left
				t := l.tenants[w.Name]
				if t == nil {
					continue
				}
				w.Jobs, w.Cost = int64(t.line.Len()), t.cost()
			}
			w.Jobs, w.Cost = min(w.Jobs, maxJobs), max(min(w.Cost, r.Rate), 1) // whatever others have told
			s := byName[w.Name]
			if s == nil {
				tag := r.Tags[w.Name]
				s = &share{name: w.Name, Tenant: fair.Tenant{Finish: tag.Finish, Weight: weight(tag.Weight), Since: w.Since}}
				byName[w.Name] = s
				shares = append(shares, s)
			}
			s.Cost = (s.Cost*s.Jobs + w.Cost*w.Jobs) / (s.Jobs + w.Jobs)
			s.Jobs += w.Jobs
			s.Since = min(s.Since, w.Since)
			s.parts = append(s.parts, mine{c.Client, w})
		}
	}
	slices.SortFunc(shares, func(a, b *share) int { return cmp.Compare(a.name, b.name) })
	if most < 0 {
		most = math.Inf(1)
	}
	if room <= 0 && r.Ahead > held { // others reserve further ahead: so do tenants, and take turns with them
		room = max(r.Pace, 1)
	}
	return shares, room - out, most
}

// waitsAt reports whether the tenant waits in a client.
func (s *share) waitsAt(client string) bool {
	return slices.ContainsFunc(s.parts, func(p mine) bool { return p.client == client })
}

// part is how many of the permits that a tenant gets are for those who wait in one client.
// Clients take turns. The client in which somebody has waited longest begins.
func (s *share) part(client string, permits int64) int64 {
	if len(s.parts) == 1 {
		if s.parts[0].client == client {
			return permits
		}
		return 0
	}
	slices.SortFunc(s.parts, func(a, b mine) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.client, b.client))
	})
	jobs, own := min((permits+s.Cost-1)/s.Cost, s.Jobs), int64(0)
	for jobs > 0 {
		with := int64(0)
		for _, p := range s.parts {
			with += min(p.Jobs, 1)
		}
		if with == 0 {
			break
		}
		each := max(jobs/with, 1)
		for i := range s.parts {
			p := &s.parts[i]
			n := min(p.Jobs, each, jobs)
			if p.Jobs, jobs = p.Jobs-n, jobs-n; p.client == client {
				own += n * p.Cost
			}
		}
	}
	return own
}

// weight is the weight that Redis has for a tenant; 1 if that is not valid.
func weight(w float64) float64 {
	if fair.CheckWeight(w) != nil {
		return 1
	}
	return w
}
