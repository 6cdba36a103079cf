package tenants

import (
	"cmp"
	"container/list"
	"maps"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

const (
	// soonLeast is how far ahead due permits are dealt at least. soonBeside is how far beyond two
	// round trips.
	soonLeast, soonBeside = 60 * time.Millisecond, 40 * time.Millisecond
	// farthest is the longest round trip that counts.
	farthest = time.Second
	// checkMost is how long those who wait make no call at most: what they wait for may have been
	// changed.
	checkMost = 250 * time.Millisecond
	// holds is for how long other clients count those who wait here, besides round trips.
	holds = time.Second
	// stillAfter is how long a call takes at least before Redis counts as one that does not
	// answer.
	stillAfter = 50 * time.Millisecond
	// retryLeast and retryMost bound how soon a call that failed is made again.
	retryLeast, retryMost = 5 * time.Millisecond, 500 * time.Millisecond
	// maxRetries is how often a call is made again if nobody waits for it.
	maxRetries = 10
	// maxTenants is how many tenants a client tells of: those that are first.
	maxTenants = 64
)

// Waiter is one request.
type Waiter struct {
	tenant string
	cost   int64
	since  line.Local
	until  line.Local // when its permits must be due at the latest; zero: any time
	atOnce bool       // it does not wait for permits

	at    *list.Element // in its tenant's line; nil: it is not there
	asked bool          // a call that was answered has told of it
	state state
}

type state int

const (
	waits   state = iota
	passed        // it went on to the limiter's line
	decided       // the limiter's line has decided
	over
)

// NewWaiter returns a request of a tenant for so many permits.
func NewWaiter(tenant string, cost int64, now, until line.Local, atOnce bool) *Waiter {
	return &Waiter{tenant: tenant, cost: cost, since: now, until: until, atOnce: atOnce}
}

// tenant is a tenant that waits, with its requests in the order of arrival.
type tenant struct {
	name   string
	line   list.List
	sum    int64   // permits that these ask for
	finish float64 // as last known
}

func (t *tenant) head() *Waiter { return t.line.Front().Value.(*Waiter) }

// cost is what each request asks for, on average.
func (t *tenant) cost() int64 {
	n := int64(t.line.Len())
	return max((t.sum+n/2)/n, 1)
}

// Line is the requests of one Client that wait for a limiter, by their tenants.
type Line struct {
	client string
	create bool // the first request for permits creates the limiter

	tenants map[string]*tenant
	waiting int
	fresh   []*Waiter // came since the last call
	inCall  []*Waiter // came before it
	tries   []*Waiter // do not wait: that call answers them

	v         float64 // virtual time
	out, held int64   // see script.TenantCall
	owed      map[string]int64
	owedV     float64
	alone     bool             // nobody was left waiting when what is owed was granted
	paid      []script.Charged // charged by the call that is not answered yet
	no        uint64           // of the last call
	told      bool             // the last call said that somebody waits here
	rest      bool             // the last call had no room for all tenants
	toldOut   int64            // permits that are not in the log yet, as the last call said

	calling  bool
	askedAt  line.Local
	nextAt   line.Local // when to ask again, even if nothing happens
	pressing bool       // something happened that Redis must hear of: others, or new requests, wait for it
	binds    bool       // the last reply left somebody waiting
	hurries  bool       // ask again at once: more can go on, but the last call did not tell of everybody

	credit     int64      // permits that are given without a call, since nobody waits
	creditEnds line.Local // until when they are

	rate      int64 // as last known
	roundTrip time.Duration
	trouble   error // why the last call failed; nil: it did not
	retries   int
	answered  line.Local // when Redis answered last
}

// NewLine returns a line in which nobody waits. client is an id that no other has.
func NewLine(client string) *Line {
	return &Line{client: client, tenants: map[string]*tenant{}, owed: map[string]int64{}}
}

// Creates says that the first request for permits creates the limiter.
func (l *Line) Creates() { l.create = true }

// Arrive puts a request into the line of its tenant. It returns true if the request goes on at
// once: if the limit has much more than anybody asks for, there is nothing to share.
func (l *Line) Arrive(w *Waiter, now line.Local) (passes bool) {
	if l.waiting == 0 && l.trouble == nil && w.cost <= l.credit && now < l.creditEnds {
		l.credit -= w.cost
		l.pass(w)
		return true
	}
	t := l.tenants[w.tenant]
	if t == nil {
		t = &tenant{name: w.tenant}
		l.tenants[w.tenant] = t
	}
	w.at = t.line.PushBack(w)
	t.sum += w.cost
	l.waiting++
	l.fresh = append(l.fresh, w)
	l.pressing = true
	return false
}

// remove takes a request out of its tenant's line.
func (l *Line) remove(w *Waiter) {
	t := l.tenants[w.tenant]
	t.line.Remove(w.at)
	w.at = nil
	t.sum -= w.cost
	l.waiting--
	if t.line.Len() == 0 {
		delete(l.tenants, w.tenant)
	}
}

// Leave takes a waiting request out; false if it no longer waits.
func (l *Line) Leave(w *Waiter) bool {
	if w.state != waits {
		return false
	}
	l.remove(w)
	w.state = over
	l.pressing = true // others may count it
	return true
}

// Decided says that the limiter's line has decided on a request that went on.
func (l *Line) Decided(w *Waiter) {
	if w.state == passed {
		w.state = decided
		l.out -= w.cost
	}
}

// Done says that a request that went on is over, and whether it got its permits.
func (l *Line) Done(w *Waiter, granted bool) {
	l.Decided(w)
	if w.state != decided {
		return
	}
	w.state = over
	l.held -= w.cost
	if !granted {
		l.Return(w.tenant, w.cost)
	}
}

// Return takes the charge for permits off a tenant.
func (l *Line) Return(tenant string, permits int64) { l.charge(tenant, -permits) }

func (l *Line) charge(tenant string, permits int64) {
	if l.owed[tenant] += permits; l.owed[tenant] == 0 {
		delete(l.owed, tenant)
	}
}

// Changed says that the limiter was changed, or that permits were released: the line has to ask
// again.
func (l *Line) Changed() {
	if l.waiting > 0 {
		l.nextAt = 0
	}
}

// soon is how far ahead due permits are dealt.
func (l *Line) soon() time.Duration {
	return max(soonLeast, soonBeside+2*min(l.roundTrip, farthest))
}

// gap is the time between two calls while not all who ask can go on.
func (l *Line) gap() time.Duration { return l.soon() / 3 }

// Next returns when to make the next call; false if there is none to make until something
// happens.
func (l *Line) Next() (at line.Local, ok bool) {
	settles := len(l.owed) > 0 || len(l.paid) > 0 || l.told && l.waiting == 0 || l.toldOut > 0 && l.out == 0
	switch {
	case l.calling || l.waiting == 0 && !settles && l.toldOut == 0:
		return 0, false
	case l.trouble != nil:
		return l.askedAt.Add(min(retryLeast<<min(l.retries, 10), retryMost)), true
	case l.hurries, l.pressing && !l.binds:
		return 0, true
	case l.pressing || settles:
		return l.askedAt.Add(l.gap()), true
	case l.waiting == 0:
		return l.askedAt.Add(checkMost), true
	}
	return max(l.nextAt, l.askedAt.Add(l.gap())), true
}

// Ask returns the next call. Answer or Failed then says what became of it.
func (l *Line) Ask(now line.Local) *script.TenantCall {
	l.calling, l.pressing, l.hurries, l.askedAt = true, false, false, now
	if l.trouble == nil { // otherwise it is the same call, which may have reached Redis
		l.no++
		l.alone = !l.binds
		for name, n := range l.owed {
			l.paid = append(l.paid, script.Charged{Tenant: name, Permits: n})
		}
		slices.SortFunc(l.paid, func(a, b script.Charged) int { return cmp.Compare(a.Tenant, b.Tenant) })
		clear(l.owed)
	}
	for _, w := range l.fresh {
		if w.state == waits {
			w.asked = true
			l.inCall = append(l.inCall, w)
			if w.atOnce {
				l.tries = append(l.tries, w)
			}
		}
	}
	clear(l.fresh)
	l.fresh = l.fresh[:0]
	t := &script.TenantCall{
		Client: l.client, No: l.no, Soon: l.soon(), Holds: holds + 2*min(l.roundTrip, farthest),
		Out: l.out, Held: l.held, V: l.owedV, Alone: l.alone, Paid: l.paid,
	}
	first, rest := l.first()
	t.Rest = rest
	for _, of := range first {
		t.Told = append(t.Told, script.Told{Tenant: of.name, Jobs: int64(of.line.Len()), Cost: of.cost(), Waited: now.Sub(of.head().since)})
	}
	l.told, l.rest, l.toldOut = len(first) > 0, rest >= 0, l.out
	return t
}

// first returns the tenants that are first, as far as is known here, and the least start tag of
// the others; negative if there are no others.
func (l *Line) first() (first []*tenant, rest float64) {
	first = slices.Collect(maps.Values(l.tenants))
	start := func(t *tenant) float64 { return max(t.finish, l.v) }
	slices.SortFunc(first, func(a, b *tenant) int {
		return cmp.Or(cmp.Compare(start(a), start(b)), cmp.Compare(a.head().since, b.head().since), cmp.Compare(a.name, b.name))
	})
	if len(first) <= maxTenants {
		return first, -1
	}
	return first[:maxTenants], start(first[maxTenants])
}

// Failed says that the call failed, and whether it may succeed later. The waiters that it returns
// must not wait for that.
func (l *Line) Failed(err error, again bool) (give []*Waiter) {
	l.calling, l.trouble = false, err
	l.retries++
	l.inCall = l.inCall[:0]
	give = l.drop(l.tries)
	l.tries = nil
	if again && (l.waiting > 0 || l.retries < maxRetries) {
		return give
	}
	l.trouble, l.retries, l.paid, l.told, l.toldOut = nil, 0, nil, false, 0
	clear(l.owed)
	return append(give, l.Close()...)
}

// Close takes out everybody who waits.
func (l *Line) Close() []*Waiter { return l.drop(l.all()) }

// all returns everybody who waits, by tenant.
func (l *Line) all() (all []*Waiter) {
	names := slices.Sorted(maps.Keys(l.tenants))
	for _, name := range names {
		for e := l.tenants[name].line.Front(); e != nil; e = e.Next() {
			all = append(all, e.Value.(*Waiter))
		}
	}
	return all
}

// drop takes out those of ws that wait.
func (l *Line) drop(ws []*Waiter) (dropped []*Waiter) {
	for _, w := range ws {
		if w.state == waits {
			l.remove(w)
			w.state = over
			dropped = append(dropped, w)
		}
	}
	return dropped
}

// Trouble reports whether a request has no answer because of Redis, and why.
func (l *Line) Trouble(w *Waiter, now line.Local) (waitsForRedis bool, trouble error) {
	still := l.calling && now.Sub(l.askedAt) > max(stillAfter, 4*l.roundTrip)
	return l.trouble != nil || still || l.answered == 0, l.trouble
}
