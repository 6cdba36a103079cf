package script

import (
	"slices"
	"strconv"
	"time"
)

// Request is one call of acquire.lua: everything that a client's line of waiters has to ask of a
// limiter, or of the members of a group, and to give back.
type Request struct {
	Keys     []string      // the reply's key, then those of each member: see RequestKeys
	No       string        // see BatchNo
	Client   string        // id of the client
	Least    Remote        // what Redis's clock shows at least, as acquire.lua last told; zero if it never did
	Furthest Remote        // what it would show if it had not been set back; zero if the client does not know
	Latest   Remote        // when it may be served at the latest, since its reply may be forgotten; zero: any time
	Far      time.Duration // up to where reservations may be used without having heard of a change; zero: as usual
	Members  []Member
	Returns  []Return
	Released []int64 // permits of each member to release from the oldest grants
	Runs     []Run
}

// Member is what a call says about a limiter.
type Member struct {
	Settings
	Create  string // the configuration to create it with, or "", or IfThere
	Refresh bool   // the cached value is to be rebuilt
	Ahead   int64  // permits that this client has reserved ahead
}

// IfThere stands for a configuration in a call that asks for nothing: if the limiter is gone, the call leaves it
// out and gives back to the other limiters.
const IfThere = "-"

// ReturnKind is why permits are given back.
type ReturnKind int64

// The kinds of returns.
const (
	Unused    ReturnKind = iota // nobody asks for others in this call
	Came                        // they were handed out: waiters hear of what becomes free
	Exchanged                   // somebody asks for others in this call
)

// announceFrom is the first bit of Announce beside a ReturnKind, for acquire.lua.
const announceFrom = 4

// Return is what a call gives back of one grant.
type Return struct {
	At       Remote
	Kind     ReturnKind
	Announce int64 // the members whose waiters are to hear that they may move up, a bit for each
	Epochs   []int64
	Ns       []int64
}

// Run is equal requests of adjacent waiters; or, if it is a prefetch, what is taken in advance as
// long as half of each limit stays free.
type Run struct {
	Longest  time.Duration // how long they would wait at most
	Reach    time.Duration // how far ahead permits may be reserved for them
	Near     time.Duration // up to here other clients do not matter
	Lead     time.Duration // how far ahead they must be due at least, to be still ahead when the reply comes
	Count    int64
	Ns       []int64 // permits of each member
	Prefetch bool
}

// Like reports whether two runs ask for the same.
func (r *Run) Like(s *Run) bool {
	return r.Longest == s.Longest && r.Reach == s.Reach && r.Lead == s.Lead && r.Prefetch == s.Prefetch && slices.Equal(r.Ns, s.Ns)
}

// BatchNo is a batch's number as the scripts get it and compare it: as text.
func BatchNo(seq uint64) string { return strconv.FormatUint(1e15+seq, 10)[1:] }

// RequestKeys are the KEYS of a request.
func RequestKeys(reply string, members []Keys) []string {
	keys := append(make([]string, 0, 1+Span*len(members)), reply)
	for _, m := range members {
		keys = append(keys, m[:]...)
	}
	return keys
}

// Args are the ARGV of acquire.lua.
func (r *Request) Args() []any {
	ns := numbers(make([]byte, 0, 128))
	ns.add(int64(r.Least), int64(r.Furthest), int64(r.Latest), r.Far.Microseconds(), int64(len(r.Members)))
	for _, m := range r.Members {
		ns.add(m.Epoch, one(m.Refresh), m.Ahead)
	}
	ns.add(int64(len(r.Returns)))
	for _, b := range r.Returns {
		ns.add(int64(b.At), int64(b.Kind)+announceFrom*b.Announce)
		ns.add(b.Epochs...)
		ns.add(b.Ns...)
	}
	ns.add(r.Released...)
	ns.add(int64(len(r.Runs)))
	for _, run := range r.Runs {
		longest := run.Longest.Microseconds()
		if run.Prefetch {
			longest = -1
		}
		ns.add(longest, run.Reach.Microseconds(), run.Near.Microseconds(), run.Lead.Microseconds(), run.Count)
		ns.add(run.Ns...)
	}
	args := append(make([]any, 0, 3+2*len(r.Members)), r.No, r.Client, string(ns))
	for _, m := range r.Members {
		args = append(args, m.Seal, m.Create)
	}
	return args
}

// numbers are the numbers of a call of acquire.lua, in one argument.
type numbers []byte

func (s *numbers) add(ns ...int64) {
	for _, n := range ns {
		if len(*s) > 0 {
			*s = append(*s, ' ')
		}
		*s = strconv.AppendInt(*s, n, 10)
	}
}

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Status says whether a request was served.
type Status int64

// The Status values.
const (
	OK      Status = 0
	Missing Status = 1 // a limiter has no rate
	Old     Status = 2 // a newer batch of this line has been served
	All     Status = 3 // fast.lua granted everything that was asked for, at Base
	Bad     Status = 4 // the configuration of a limiter makes no sense
	Late    Status = 5 // the batch was first sent too long ago
)

// Reply is the answer to a request.
type Reply struct {
	Now        Remote
	Status     Status
	Member     int    // the member whose rate is missing or whose configuration makes no sense
	Field      string // the field that makes no sense
	Base       Remote
	Short      bool // fast.lua served it
	Renewed    bool // limiters that expire have their whole lifetime again, from Base on
	Epochs     []int64
	Changed    []*Settings // nil if the settings are those last seen
	Contenders int64       // clients that reserve far ahead; 0 if they were not counted
	Runs       []Outcome
}

// Grant is Count equal requests granted for the same time.
type Grant struct {
	Count  int64
	Offset int64 // us after the reply's base
}

// Rest says what became of the requests of a run that were not granted.
type Rest int64

// The Rest values.
const (
	None    Rest = 0
	Denied  Rest = 1 // their permits would be due after the longest wait
	Exceeds Rest = 2 // more permits than the rate
	Held    Rest = 3 // their permits are due further ahead than may be reserved
)

// Outcome answers one run.
type Outcome struct {
	Grants []Grant
	Rest   Rest
	Wait   time.Duration // until the permits of the rest are due (Denied, Held)
	Rate   int64         // what was exceeded (Exceeds)
	Member int           // the limiter that decided
}

// Decode reads the reply of acquire.lua to this request.
func (r *Request) Decode(reply any) (Reply, error) {
	return decodeReply(reply, len(r.Members), len(r.Runs))
}

func decodeReply(reply any, members, runs int) (Reply, error) {
	text, ok := reply.(string)
	if !ok {
		return Reply{}, badReply("%T where a string was expected", reply)
	}
	d := decoder{rest: text}
	r := Reply{Now: Remote(d.next()), Status: Status(d.next())}
	switch r.Status {
	case OK:
		d.served(&r, members, runs)
	case Missing:
		r.Member = d.index(members)
	case Bad:
		r.Member, r.Field = d.index(members), d.word()
	case Old, Late:
	case All:
		r.Base = Remote(d.next())
	default:
		d.fail("status %d", r.Status)
	}
	if d.err == nil && d.rest != "" {
		d.fail("%d bytes too many", len(d.rest))
	}
	return r, d.err
}

func (d *decoder) served(r *Reply, members, runs int) {
	r.Base = Remote(d.next())
	r.Epochs = make([]int64, members)
	r.Changed = make([]*Settings, members)
	for i := range members {
		r.Epochs[i] = d.next()
		if d.index(2) == 1 {
			r.Changed[i] = d.settings(r.Epochs[i])
		}
	}
	r.Contenders = d.next()
	r.Runs = make([]Outcome, runs)
	for i := range r.Runs {
		d.outcome(&r.Runs[i], members)
		r.Renewed = r.Renewed || len(r.Runs[i].Grants) > 0
		if d.err != nil {
			return
		}
	}
}

func (d *decoder) outcome(o *Outcome, members int) {
	n := d.index(len(d.rest)/2 + 1) // no more grants than there is text for
	o.Grants = make([]Grant, n)
	for i := range o.Grants {
		o.Grants[i] = Grant{Count: d.next(), Offset: d.next()}
		if o.Grants[i].Count < 1 || o.Grants[i].Offset < 0 {
			d.fail("grant %+v", o.Grants[i])
		}
	}
	switch o.Rest = Rest(d.next()); o.Rest {
	case None:
	case Denied, Held:
		o.Wait = d.duration()
		o.Member = d.index(members)
	case Exceeds:
		o.Member = d.index(members)
		o.Rate = d.next()
	default:
		d.fail("outcome %d", o.Rest)
	}
}
