package throttle

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// errReply: a script answered what this version cannot read.
var errReply = errors.New("unexpected reply from Redis (another version's script?)")

func badReply(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errReply}, args...)...)
}

// settings is what a client must know of a limiter to ask for its permits.
type settings struct {
	seal      string // the whole configuration, as the scripts compare it
	epoch     int64
	rate      int64
	interval  time.Duration
	guard     time.Duration
	offset    int64 // us from which calendar windows count
	perClient bool
	calendar  bool
	smooth    bool
	keepAlive time.Duration // 1ms for a limiter that expires in some other way
	plain     bool          // fast.lua knows all that applies to the limiter
}

// Where a seal, as log.lua writes it, has what a reply says in no other way.
const (
	sealKeepAlive = 3
	sealOffset    = 7
	sealPause     = 9
	sealFields    = 10
)

// span is how long a grant counts.
func (s settings) span() time.Duration {
	if s.calendar {
		return s.interval
	}
	return s.interval + s.guard
}

// grant is count equal requests granted for one time.
type grant struct {
	count  int64
	offset int64 // us after the reply's base
}

// What became of the requests of a run that were not granted.
const (
	restNone    = 0
	restDenied  = 1 // the turn comes after the longest wait
	restExceeds = 2 // more permits than the rate
	restHeld    = 3 // the turn is further ahead than may be reserved
)

// runReply answers one run of equal requests.
type runReply struct {
	grants []grant
	rest   int64
	wait   time.Duration // until the turn of the rest (restDenied, restHeld)
	rate   int64         // what was exceeded (restExceeds)
	member int           // the limiter that decided
}

const (
	statusOK      = 0
	statusMissing = 1 // a limiter has no rate
	statusOld     = 2 // a newer batch of this queue has been served
	statusAll     = 3 // fast.lua granted all that was asked for, at base
	statusBad     = 4 // the configuration of a limiter makes no sense
	statusLate    = 5 // the batch was first sent too long ago
)

// batchReply is the answer to one call of acquire.lua.
type batchReply struct {
	now        int64 // us, Redis's clock
	status     int64
	member     int    // whose rate is missing, or makes no sense
	field      string // which makes no sense
	base       int64
	epochs     []int64
	changed    []*settings // nil where the settings are those last seen
	contenders int64
	runs       []runReply
}

// decodeBatch reads the reply of acquire.lua for a number of members and runs.
func decodeBatch(reply any, members, runs int) (batchReply, error) {
	text, ok := reply.(string)
	if !ok {
		return batchReply{}, badReply("%T where a string was expected", reply)
	}
	d := decoder{rest: text}
	r := batchReply{now: d.next(), status: d.next()}
	switch r.status {
	case statusOK:
		d.batch(&r, members, runs)
	case statusMissing:
		r.member = d.index(members)
	case statusBad:
		r.member, r.field = d.index(members), d.word()
	case statusOld, statusLate:
	case statusAll:
		r.base = d.next()
	default:
		d.fail("status %d", r.status)
	}
	if d.err == nil && d.rest != "" {
		d.fail("%d bytes too many", len(d.rest))
	}
	return r, d.err
}

// decoder reads integers separated by single spaces; its first error sticks.
type decoder struct {
	rest string
	err  error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = badReply(format, args...)
	}
}

func (d *decoder) next() int64 {
	if d.err != nil {
		return 0
	}
	word := d.word()
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		d.fail("%q where an integer was expected", clip(word))
		return 0
	}
	return n
}

func (d *decoder) word() (word string) {
	word, d.rest, _ = strings.Cut(d.rest, " ")
	return word
}

// index reads a number below n.
func (d *decoder) index(n int) int {
	i := d.next()
	if i < 0 || i >= int64(n) {
		d.fail("index %d of %d", i, n)
		return 0
	}
	return int(i)
}

func (d *decoder) duration() time.Duration { return time.Duration(d.next()) * time.Microsecond }

func (d *decoder) batch(r *batchReply, members, runs int) {
	r.base = d.next()
	r.epochs = make([]int64, members)
	r.changed = make([]*settings, members)
	for i := range members {
		r.epochs[i] = d.next()
		if d.index(2) == 1 {
			r.changed[i] = d.settings(r.epochs[i])
		}
	}
	r.contenders = d.next()
	r.runs = make([]runReply, runs)
	for i := range r.runs {
		d.run(&r.runs[i], members)
		if d.err != nil {
			return
		}
	}
}

func (d *decoder) settings(epoch int64) *settings {
	s := &settings{seal: d.word(), epoch: epoch, rate: d.next(), interval: d.duration(), guard: d.duration()}
	s.perClient, s.calendar, s.smooth = d.index(2) == 1, d.index(2) == 1, d.index(2) == 1
	if d.err == nil && (s.rate < 1 || s.interval <= 0 || s.guard < 0) {
		d.fail("settings %+v", *s)
	}
	if f := strings.Split(s.seal, ":"); len(f) == sealFields {
		if ms, err := strconv.ParseInt(f[sealKeepAlive], 10, 64); err == nil {
			s.keepAlive = time.Duration(ms) * time.Millisecond
		}
		s.offset, _ = strconv.ParseInt(f[sealOffset], 10, 64)
		s.plain = !s.calendar && !s.smooth && f[sealKeepAlive] == "0" && f[sealPause] == "0"
	}
	return s
}

func (d *decoder) run(r *runReply, members int) {
	n := d.index(len(d.rest)/2 + 1) // no more grants than there is text for
	r.grants = make([]grant, n)
	for i := range r.grants {
		r.grants[i] = grant{count: d.next(), offset: d.next()}
		if r.grants[i].count < 1 || r.grants[i].offset < 0 {
			d.fail("grant %+v", r.grants[i])
		}
	}
	switch r.rest = d.next(); r.rest {
	case restNone:
	case restDenied, restHeld:
		r.wait = d.duration()
		r.member = d.index(members)
	case restExceeds:
		r.member = d.index(members)
		r.rate = d.next()
	default:
		d.fail("outcome %d", r.rest)
	}
}
