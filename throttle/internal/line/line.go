package line

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

var (
	// ErrNotInitialized is throttle.ErrNotInitialized.
	ErrNotInitialized = errors.New("not initialized: it has no rate in Redis")
	// ErrExceedsRate is throttle.ErrExceedsRate.
	ErrExceedsRate = errors.New("more permits than the rate allows")
	// ErrClosed is throttle.ErrClosed.
	ErrClosed = errors.New("client closed")
)

// Config is what New needs to make a Line.
type Config struct {
	Client  string        // the client's id
	Reply   string        // a key of no other line, where Redis keeps the reply to the latest batch
	Members []script.Keys // the keys of each limiter
	Way     RoundTrips    // what another line has measured of the round trips to Redis
	Known   Memory        // what an earlier line for the same limiter knew, or nothing
	Clock   *Furthest     // of the server, shared with lines for its other limiters; nil: none known
	Random  *rand.Rand
}

// Around is what a line cannot know on its own. The driver keeps it up to date.
type Around struct {
	Answered  bool          // Redis has answered this client
	FirstCall Local         // when this client made its first call
	Hears     bool          // the client hears of changes when they are announced
	TimerLate time.Duration // how late timers fire at present
	Drawn     int64         // how many lent permits were handed out since the previous step
	Create    []string      // the configuration to create each limiter with, or ""
	Elsewhere []int64       // permits of each member that other lines of this client have reserved
}

// Line is the state of a line. Only Step changes it, with two exceptions: the driver sets
// Around, and Idle drops reservations that nobody came for. Its methods must not be called
// concurrently.
type Line struct {
	c      Config
	keys   []string // KEYS of a request
	Around Around
	out    *Actions // of the present step

	closed  bool
	calling bool // a call is under way, or about to be

	// Who waits.
	arrivals uint64
	front    []*Waiter // to be asked for again, ahead of waiting
	waiting  []*Waiter // in order of arrival
	holders  []*Waiter // have a grant; in no order: see byDue
	reserved []int64   // permits of each member that the holders have
	returns  []returned
	releases []*Release
	stock    stock

	// What is known about Redis.
	config       []script.Settings
	heardAt      Local  // when the latest answered request was sent; zero: too long ago to act on
	doubts       uint64 // about the configuration: answers to requests before the latest are too old
	refreshedAt  Local
	sinceRefresh int   // calls since then
	spared       int64 // permits left unused because they came too late, in the span
	sparedAt     Local // that began then
	contenders   int64 // processes that ask for reservations far ahead, as far as is known
	clock        serverClock
	told         serverClock   // as acquire.lua told it; it is told this in return
	far          time.Duration // up to where grants survive a configuration change, if beyond freshFor
	roundTrips   RoundTrips
	measuring    int           // checks still to make to measure the round trips
	almostKnown  int           // how many there were when a call for permits became one more; 0 if none did
	firstTook    time.Duration // the first check, in which the client connects
	callSince    Local         // since when the line waits for an answer; zero if it does not
	trouble      error         // why the last call failed, until one succeeds
	failures     int           // checks that failed since the last one that did not

	// When to ask next.
	seq         uint64
	keyNo       int
	servedUntil Local // until when a batch may be served
	askAt       Local // before then the horizon does not reach the head of the line
	urgentAt    Local // when somebody must have an answer, if before askAt; zero: nobody
	movedUpAt   Local
	moveUpAt    Local         // when to ask again for the grants that are not near; zero: no need
	moving      moving        // if some of them are left, which the next call asks for again
	unannounced []unannounced // of each member; nil: nothing went back yet
	binding     bool          // the latest batch did not get all it asked for at once
	scarceUntil Local         // until then the short way, which found too little free, is not tried
	verifiedAt  Local         // when a call by the short way last verified what others may have done
	unverified  int           // calls by the short way since then
	fieldsAt    Local         // when such a call last verified all fields
	renews      Remote        // until when limiters that expire need not be told to live on; zero: unknown
	gathering   gathering
	fullUntil   Local   // when the latest grant is due, unless its waiters asked for a later one
	fullFor     []int64 // what that grant was for
	rankedAt    Remote  // the time of the latest grants
	ranked      int     // how many waiters have a grant for that time
	surplus     surplus
	comeback    comeback
	used        meter // of the first member
}

// New returns a line in which nobody waits.
func New(c Config) *Line {
	if c.Clock == nil {
		c.Clock = new(Furthest)
	}
	l := &Line{
		c: c, keys: script.RequestKeys(c.Reply, c.Members), roundTrips: c.Way,
		config: make([]script.Settings, len(c.Members)), reserved: make([]int64, len(c.Members)),
		Around: Around{Create: make([]string, len(c.Members)), Elsewhere: make([]int64, len(c.Members))},
	}
	l.config[0], l.told = c.Known.settings, c.Known.told
	l.refreshedAt, l.sinceRefresh = c.Known.refreshedAt, c.Known.sinceRefresh
	l.verifiedAt, l.fieldsAt, l.unverified, l.renews = c.Known.verifiedAt, c.Known.fieldsAt, c.Known.unverified, c.Known.renews
	return l
}

// Memory is what a line that nobody waits in leaves to the next line for the same limiter:
// how the limiter was configured, when that was last verified, and what Redis's clock showed.
type Memory struct {
	settings                 script.Settings
	told                     serverClock
	sinceRefresh, unverified int

	refreshedAt, verifiedAt, fieldsAt Local
	renews                            Remote
}

// Memory returns what the line leaves. It is useful only for a limiter that the short way may
// serve.
func (l *Line) Memory() (m Memory, ok bool) {
	if len(l.config) > 1 || !l.config[0].Plain || l.config[0].PerClient || l.closed {
		return m, false
	}
	return Memory{l.config[0], l.told, l.sinceRefresh, l.unverified, l.refreshedAt, l.verifiedAt, l.fieldsAt, l.renews}, true
}

// Phase names the state of the line, for people and for tests that count which states
// occurred.
func (l *Line) Phase() string {
	switch {
	case l.closed:
		return "closed"
	case l.trouble != nil:
		return "in trouble"
	case l.calling:
		return "calls"
	case len(l.front)+len(l.waiting) > 0:
		return "holds back"
	case len(l.holders)+len(l.comeback.held) > 0:
		return "has reservations"
	case l.stock.left > 0:
		return "has a stock"
	}
	return "idle"
}

// Reserved is how many permits of a member have been granted to waiters who do not have them
// yet.
func (l *Line) Reserved(member int) int64 { return l.reserved[member] }

// Way returns what is known of the round trips to Redis, for new lines.
func (l *Line) Way() RoundTrips { return l.roundTrips.known() }

// Waits reports whether somebody waits for permits.
func (l *Line) Waits() bool { return len(l.front)+len(l.waiting)+len(l.holders) > 0 }

// Idle reports whether nobody waits and nothing is left to do.
func (l *Line) Idle(now Local) bool {
	l.checkAt(now)
	return !l.calling && !l.stock.holds() && !l.Waits() && len(l.comeback.held)+len(l.returns)+len(l.releases) == 0
}

// KnownTime returns what Redis's clock shows at least, as far as this line has heard, and
// what it would show if it had not been set back. Each is zero if the line has not heard of
// it.
func (l *Line) KnownTime(now Local) (shows, furthest Remote) {
	return l.shows(now), l.c.Clock.Least(now)
}

// shows is what Redis's clock shows at least; zero if nothing is known about it.
func (l *Line) shows(now Local) Remote {
	if l.clock.known {
		return l.clock.least(now)
	}
	return l.c.Clock.shows(now)
}

// showed records that a reply showed Redis's clock at now.
func (l *Line) showed(now Remote, sent, received Local) {
	l.clock.learn(now, sent, received)
	if c, ok := l.c.Clock.learn(now, sent, received); ok {
		l.clock = c // it also knows what other lines' calls told
	}
}

// Due is when the permits of a waiter that has a grant are due; while it waits to ask for others, about when it asks.
func (l *Line) Due(w *Waiter) Local {
	if w.state == queued {
		return max(w.grant.due, l.nextAsk())
	}
	return w.grant.due
}

// halfGuard is how late a permit may be handed out; zero if any time will do.
func (l *Line) halfGuard() time.Duration {
	var least time.Duration
	for _, s := range l.config {
		if s.Guard > 0 && (least == 0 || s.Guard < least) {
			least = s.Guard
		}
	}
	return least / 2
}

// Span is the shortest time for which a permit of any member counts.
func (l *Line) Span() time.Duration {
	least := forever
	for _, s := range l.config {
		least = min(least, s.Span())
	}
	return least
}
