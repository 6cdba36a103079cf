package script

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Short is a request by the short way: one call of fast.lua, which grants all of it or does
// nothing.
type Short struct {
	r      *Request
	least  Remote        // what Redis's clock must show at least
	within time.Duration // for how long from then on it may be served
	verify Verify        // what to check, of what need not be checked in each call
	renews Remote        // from when on limiters that expire get their lifetime again; zero: now
}

const (
	// replyBeyond is for how long a reply is kept after its call is no longer served.
	replyBeyond = time.Second
	// anyTime: a call that may be served for this long needs no latest time, since fast.lua keeps
	// its reply for longer.
	anyTime = 10 * time.Second
)

// Declined says why the short way did nothing.
type Declined int64

// The reasons.
const (
	Unfit  Declined = 0 // something may have happened that fast.lua does not know of
	NoRoom Declined = 1 // too little of a limit is free, and a little later that will be the same
)

// Fits reports whether the short way may be tried: one run of equal requests, perhaps with a
// prefetch, of plain limiters.
func (r *Request) Fits() bool {
	if len(r.Runs) == 0 || len(r.Runs) > 2 || r.Runs[0].Lead != 0 || len(r.Runs) == 2 && !r.Runs[1].Prefetch || len(r.Returns) > 0 {
		return false
	}
	for i, m := range r.Members {
		if !m.Plain || m.Refresh || r.Released[i] > 0 || r.Runs[0].Ns[i] > m.Rate { // never granted; and sums may not fit
			return false
		}
	}
	return true
}

// Short is the short way of a request that fits. It may be served for within. Redis's clock must
// show at least least. verify says what it checks of what need not be checked in each call.
// Limiters that expire live on until renews at least (see RenewIn).
func (r *Request) Short(least Remote, within time.Duration, verify Verify, renews Remote) *Short {
	return &Short{r, least, within, verify, renews}
}

// Verify is what a call by the short way checks.
type Verify int64

// The Verify values.
const (
	Barely Verify = iota // only that nothing was changed by those who announce their changes
	Others               // also that Redisson's clients changed nothing, and that the log exists and is short
	Fields               // also that nobody changed anything
)

// Call returns the KEYS and ARGV of fast.lua.
func (s *Short) Call() (keys []string, args []any) {
	r, n := s.r, len(s.r.Members)
	keys, args = make([]string, 1+3*n), append(make([]any, 0, 4+4*n), r.No, int64(s.least))
	var prefetch int64
	for _, run := range r.Runs {
		if run.Prefetch {
			prefetch = run.Count
		}
	}
	keys[0] = r.Keys[0]
	lives := false // some keys expire
	for i, m := range r.Members {
		keys[1+i], keys[1+n+i], keys[1+2*n+i] = r.keysOf(i)
		lives = lives || m.PerClient || m.Expires > 0
		args = append(args, m.Seal, r.Runs[0].Ns[i]*r.Runs[0].Count+prefetch, m.Rate)
	}
	if prefetch == 0 && s.verify == Barely && !lives {
		return keys, args
	}
	kept, latest := anyTime+replyBeyond, Remote(0)
	if s.within < anyTime && s.least > 0 { // the reply's key expires soon after a limiter that expires
		kept, latest = s.within+replyBeyond, s.least+Remote(s.within.Microseconds())
	}
	args = append(args, prefetch > 0, s.verify != Barely, kept.Milliseconds(), int64(s.renews))
	for _, m := range r.Members {
		var ms int64
		if m.PerClient {
			ms = (m.Span() + time.Millisecond - 1).Milliseconds()
		}
		args = append(args, ms, m.Expires.Milliseconds())
	}
	if latest > 0 {
		args = append(args, int64(latest))
	}
	return keys, args
}

// keysOf are the keys of a member that the short way needs.
func (r *Request) keysOf(member int) (value, name, permits string) {
	keys, own := r.Keys[1+Span*member:], 0
	if r.Members[member].PerClient {
		own = 2
	}
	return keys[1+own], keys[0], keys[2+own]
}

// renewShare: after the short way has used a limiter that expires, the limiter may expire sooner,
// by this part of its lifetime (1/16). So the short way need not renew the lifetime in each call.
const renewShare = 16

// RenewIn is how long after limiters were used, and so got their whole lifetime, they need it
// again: a grant has to be known for as long as it counts.
func RenewIn(limiters []Settings) time.Duration {
	d := time.Duration(math.MaxInt64)
	for i := range limiters {
		if s := &limiters[i]; s.Expires > 0 {
			d = min(d, s.Expires/renewShare, s.Expires-s.Span())
		}
	}
	return d
}

// Decode reads the reply of fast.lua, or its part of many.lua's reply. If the request was
// declined there is no Reply.
func (s *Short) Decode(reply any) (r Reply, declined bool, why Declined, err error) {
	switch reply := reply.(type) {
	case int64:
		return Reply{}, true, Declined(reply), nil
	case string:
		now, base, two := strings.Cut(reply, " ")
		if !two {
			base = now
		}
		shows, err := strconv.ParseInt(now, 10, 64)
		at, err2 := strconv.ParseInt(base, 10, 64)
		if err != nil || err2 != nil {
			return Reply{}, false, 0, badReply("%q where a time was expected", Clip(reply))
		}
		r = Reply{Now: Remote(shows), Base: Remote(at)}
		s.granted(&r)
		return r, false, 0, nil
	}
	return Reply{}, false, 0, badReply("%T where a string was expected", reply)
}

// Repeated completes acquire.lua's reply to a request that fast.lua has served already, to what
// fast.lua itself would have replied.
func (s *Short) Repeated(r *Reply) { s.granted(r) }

func (s *Short) granted(r *Reply) {
	if len(s.r.Members) == 1 && len(s.r.Runs) == 1 { // most requests are like this: all of it in one allocation
		one := &struct {
			epochs  [1]int64
			changed [1]*Settings
			runs    [1]Outcome
			grants  [1]Grant
		}{}
		r.Epochs, r.Changed, r.Runs = one.epochs[:], one.changed[:], one.runs[:]
		r.Runs[0].Grants = one.grants[:]
	} else {
		r.Epochs, r.Changed, r.Runs = make([]int64, len(s.r.Members)), make([]*Settings, len(s.r.Members)), make([]Outcome, len(s.r.Runs))
		for i := range r.Runs {
			r.Runs[i].Grants = make([]Grant, 1)
		}
	}
	r.Status, r.Short, r.Renewed = OK, true, r.Base >= s.renews
	for i, m := range s.r.Members {
		r.Epochs[i] = m.Epoch
	}
	for i, run := range s.r.Runs {
		r.Runs[i].Grants[0].Count = run.Count
	}
}
