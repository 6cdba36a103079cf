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

// Config is what a Line is made for.
type Config struct {
	Client  string        // its id
	Reply   string        // a key that no other line has, where Redis keeps the reply to the latest batch
	Members []script.Keys // of the limiters
	Way     RoundTrips    // what another line has learnt of the way to Redis
	Known   Memory        // what a line for the same limiter knew, or nothing
	Clock   *Furthest     // of the server, shared with the lines for other limiters on it; nil if no other is known to be there
	Random  *rand.Rand
}

// Around is what a line does not see by itself. The driver keeps it up to date.
type Around struct {
	Answered  bool          // Redis has answered this client
	FirstCall Local         // when this client made its first call
	Hears     bool          // of changes, as they are announced
	TimerLate time.Duration // how late timers fire at present
	Drawn     int64         // permits of what was lent that were handed out since the step before
	Create    []string      // with what configuration to create each limiter, or ""
	Elsewhere []int64       // permits of each member that other lines of this client have reserved ahead
}

// Line is the state of a line. Step is its only way to change, but for Around, and
// for Idle, which lets go of what nobody came for. Nothing of it is to be called
// concurrently.
type Line struct {
	c      Config
	keys   []string // of a request
	Around Around
	out    *Actions // of the present step

	closed  bool
	calling bool // a call is under way, or about to be

	// Who waits.
	arrivals uint64
	front    []*Waiter // to be asked for again, ahead of waiting
	waiting  []*Waiter // in the order of their arrival
	holders  []*Waiter // in no order: see inTurn
	reserved []int64   // permits of each member that those have
	returns  []returned
	releases []*Release
	stock    stock

	// What is known of Redis.
	config       []script.Settings
	heardAt      Local  // when the latest request was sent that was answered; zero: too long ago to act on
	doubts       uint64 // of what is known of the configuration: of a request before one, the answer is too old
	refreshedAt  Local
	sinceRefresh int   // calls
	spared       int64 // permits that were left unused, because they came too late,
	sparedAt     Local // in the span that began then
	contenders   int64 // processes that ask for places far ahead, as far as known
	clock        serverClock
	told         serverClock   // as acquire.lua told it: what it is told in return
	far          time.Duration // up to where Redis lets places stand for this line when the configuration changes, if that is more than freshFor
	roundTrips   RoundTrips
	measuring    int   // looks since the first call
	callSince    Local // since when it waits for an answer; zero if it does not
	trouble      error // why the last call failed, until one succeeds
	failures     int   // looks at the configuration that failed since one did not

	// When to ask next.
	seq         uint64
	keyNo       int
	servedUntil Local // up to when a batch may be served
	askAt       Local // the horizon does not reach the head of the line before
	urgentAt    Local // when somebody must have an answer, if before askAt; zero: nobody
	movedUpAt   Local
	moveUpAt    Local  // when to ask for the places again that are not near; zero: there is no need
	binding     bool   // the latest batch did not get all it asked for at once
	scarceUntil Local  // the short way, which found too little free, is not tried before
	verifiedAt  Local  // when it last looked after all
	unverified  int    // calls by it since it looked at the log
	fieldsAt    Local  // when it last looked at all fields
	renews      Remote // until when limiters that expire need not be told to live on; zero: nobody knows
	gathering   gathering
	fullUntil   Local   // when the latest place that was had falls due
	fullFor     []int64 // what it was for
	rankedAt    Remote  // of the latest places that were had
	ranked      int     // how many it has of them
	surplus     surplus
	used        meter // of the first member
}

// New is a line in which nobody waits.
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

// Memory is what is left of a line that nobody waits in, for the next for the
// same limiter: how it was configured, when that was last seen to, and what Redis's
// clock showed.
type Memory struct {
	settings                 script.Settings
	told                     serverClock
	sinceRefresh, unverified int

	refreshedAt, verifiedAt, fieldsAt Local
	renews                            Remote
}

// Memory is of use for a limiter that the short way may serve.
func (l *Line) Memory() (m Memory, ok bool) {
	if len(l.config) > 1 || !l.config[0].Plain || l.config[0].PerClient || l.closed {
		return m, false
	}
	return Memory{l.config[0], l.told, l.sinceRefresh, l.unverified, l.refreshedAt, l.verifiedAt, l.fieldsAt, l.renews}, true
}

// Phase names where the line stands, for people and for tests that count what was met.
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
	case len(l.holders) > 0:
		return "has reservations"
	case l.stock.left > 0:
		return "has a stock"
	}
	return "idle"
}

// Reserved is how many permits of a member those have whose turn is to come.
func (l *Line) Reserved(member int) int64 { return l.reserved[member] }

// Way is what is known of the way to Redis, for lines that begin.
func (l *Line) Way() RoundTrips { return l.roundTrips.known() }

// Idle reports whether nobody waits and nothing is left to do.
func (l *Line) Idle(now Local) bool {
	l.checkAt(now)
	return !l.calling && len(l.front)+len(l.waiting)+len(l.holders)+len(l.returns)+len(l.releases) == 0
}

// KnownTime is what Redis's clock shows at least, as this line heard last, and what
// it would show if it had not been set back; zeros if it has not heard of it.
func (l *Line) KnownTime(now Local) (shows, furthest Remote) {
	return l.shows(now), l.c.Clock.Least(now)
}

// shows is what Redis's clock shows at least; zero if nothing is known of it.
func (l *Line) shows(now Local) Remote {
	if l.clock.known {
		return l.clock.least(now)
	}
	return l.c.Clock.shows(now)
}

// showed takes up that a reply showed Redis's clock.
func (l *Line) showed(now Remote, sent, received Local) {
	l.clock.learn(now, sent, received)
	l.c.Clock.learn(now, sent, received)
}

// Due is when the turn of a waiter comes that has a place.
func (l *Line) Due(w *Waiter) Local { return w.grant.due }

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

// span is the shortest time for which a permit counts.
func (l *Line) span() time.Duration {
	least := forever
	for _, s := range l.config {
		least = min(least, s.Span())
	}
	return least
}
