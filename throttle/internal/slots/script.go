package slots

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// The scripts, one for each verb. Each begins with slots.lua.
var (
	//go:embed lua/slots.lua
	slotsLua string
	//go:embed lua/exchange.lua
	exchangeLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/holders.lua
	holdersLua string

	exchangeScript = redis.NewScript(slotsLua + exchangeLua)
	renewScript    = redis.NewScript(slotsLua + renewLua)
	holdersScript  = redis.NewScript(slotsLua + holdersLua)
)

// ErrRated says that the name is that of a rate limit.
var ErrRated = errors.New("the name is that of a rate limit")

// Bounds of slots.lua.
const (
	MaxLimit = 1_000_000
	MinLease = 3 * time.Second
	MaxLease = 24 * time.Hour
	MaxID    = 1024 // bytes of a holder's id
)

// Limit is a limit in flight: how many may hold a slot at a time, and how long a slot lasts that
// is not renewed.
type Limit struct {
	Name  string
	Slots int64
	Lease time.Duration
}

func (l Limit) keys() []string {
	p := script.Prefix(l.Name)
	return []string{l.Name, p + ":slots", p + ":held", p + ":line", p + ":seen"}
}

// give is a slot that goes back, or, if the fence is 0, a claim that is over.
type give struct {
	id, fence string
	claim     uint64
}

// claim is what one waiter asks of all limits of a queue.
type claim struct {
	id    string
	no    uint64
	since int64 // first arrival, in microseconds of Redis's clock; 0: now
	made  time.Time
}

// exchange is one call of exchange.lua.
type exchange struct {
	limits  []Limit
	apply   []bool
	token   string
	client  string
	no      uint64
	gives   []give
	claims  []claim
	callKey string
}

func (x *exchange) keysAndArgs() (keys []string, args []any) {
	for _, l := range x.limits {
		keys = append(keys, l.keys()...)
	}
	keys = append(keys, x.callKey)
	args = make([]any, 0, 6+3*len(x.limits)+3*len(x.gives)+4*len(x.claims))
	args = append(args, x.token, x.client, script.BatchNo(x.no), len(x.limits))
	for i, l := range x.limits {
		args = append(args, l.Slots, l.Lease.Milliseconds(), x.apply[i])
	}
	args = append(args, len(x.gives))
	for _, g := range x.gives {
		args = append(args, g.id, g.fence, g.claim)
	}
	args = append(args, len(x.claims))
	for _, c := range x.claims {
		args = append(args, c.id, c.no, c.since, time.Since(c.made).Milliseconds())
	}
	return keys, args
}

// outcome answers a claim.
type outcome struct {
	fence   string        // of the lease; empty: refused
	lasts   time.Duration // length of the lease
	limit   int           // the limit that refused it
	blocked time.Duration // until a lease ends that another has of the id; 0: nobody has one
	since   int64         // first arrival in line
}

// errOld says that a later call of the queue was served before this one.
var errOld = errors.New("a later call was served before")

func (x *exchange) decode(reply any) ([]outcome, error) {
	if reply == "old" {
		return nil, errOld
	}
	lines, ok := reply.([]any)
	if !ok || len(lines) != len(x.claims) {
		return nil, fmt.Errorf("%w: %T to %d claims", script.ErrReply, reply, len(x.claims))
	}
	out := make([]outcome, len(lines))
	for i, line := range lines {
		text, _ := line.(string)
		f := strings.Fields(text)
		ns := make([]int64, len(f))
		bad := len(f) < 3
		for n := 1; n < len(f) && !bad; n++ {
			var err error
			ns[n], err = strconv.ParseInt(f[n], 10, 64)
			bad = err != nil || ns[n] < 0
		}
		switch {
		case !bad && f[0] == "g" && len(f) == 3 && ns[2] <= MaxLease.Milliseconds():
			out[i] = outcome{fence: f[1], lasts: time.Duration(ns[2]) * time.Millisecond}
		case !bad && f[0] == "w" && len(f) == 4 && ns[1] < int64(len(x.limits)):
			out[i] = outcome{limit: int(ns[1]), blocked: min(time.Duration(ns[2])*time.Millisecond, MaxLease), since: ns[3]}
		default:
			return nil, fmt.Errorf("%w: %q to a claim", script.ErrReply, script.Clip(text))
		}
	}
	return out, nil
}

// limitError is what exchange.lua says about one limit of the call.
type limitError struct {
	limit int
	err   error
}

func (e *limitError) Error() string { return e.err.Error() }
func (e *limitError) Unwrap() error { return e.err }

// ofLimit is the index of the limit that an error of a call concerns; false if it concerns all.
func ofLimit(err error) (limit int, one bool) {
	if of, ok := errors.AsType[*limitError](err); ok {
		return of.limit, true
	}
	return 0, false
}

// classify turns an error of exchange.lua about one of n limits into a limitError.
func classify(err error, n int) error {
	if err == nil {
		return nil
	}
	said, ok := strings.CutPrefix(err.Error(), "LIMIT ")
	number, what, _ := strings.Cut(said, " ")
	limit, bad := strconv.Atoi(number)
	if !ok || bad != nil || limit < 0 || limit >= n {
		return err
	}
	if what == "RATED" {
		return &limitError{limit, ErrRated}
	}
	return &limitError{limit, script.Classify(errors.New(what))}
}

// decodeRenewed reads the reply of renew.lua for n leases.
func decodeRenewed(reply any, n int) ([]time.Duration, error) {
	values, ok := reply.([]any)
	if !ok || len(values) != n {
		return nil, fmt.Errorf("%w: %T to %d leases", script.ErrReply, reply, n)
	}
	out := make([]time.Duration, n)
	for i, v := range values {
		ms, ok := v.(int64)
		if !ok || ms > MaxLease.Milliseconds() {
			return nil, fmt.Errorf("%w: %v to a lease", script.ErrReply, v)
		}
		out[i] = time.Duration(ms) * time.Millisecond
	}
	return out, nil
}

// Standing is how a limit in flight stands.
type Standing struct {
	Limit
	Taken   int64         // slots that are held, or were handed to one that waits
	Waiting int64         // in its line
	Pinned  bool          // configuration files leave it alone
	Oldest  time.Duration // for how long the head of the line has waited
	Holders []Holder      // the ones whose leases end first
}

// Holder holds a slot.
type Holder struct {
	ID     string
	Client string        // the Client that holds it; empty: it was handed to a waiter that has not claimed it yet
	Held   time.Duration // since it got the slot
	Ends   time.Duration // until its lease ends, unless it is renewed
}

// Read reads how a limit stands, with at most so many holders; false if there is none.
func Read(ctx context.Context, rdb redis.Scripter, name string, holders int) (s Standing, found bool, err error) {
	reply, _, err := script.Call(ctx, rdb, holdersScript, Limit{Name: name}.keys(), holders)
	return DecodeStanding(name, reply, err)
}

// PipeRead puts the call of Read into a pipeline. It sends the script's hash only: if Redis does
// not know that, call Read.
func PipeRead(ctx context.Context, p redis.Scripter, name string, holders int) *redis.Cmd {
	return holdersScript.EvalSha(ctx, p, Limit{Name: name}.keys(), holders)
}

// DecodeStanding decodes what Redis replied to Read or PipeRead.
func DecodeStanding(name string, reply any, err error) (s Standing, found bool, _ error) {
	if errors.Is(err, redis.Nil) || err == nil && reply == nil {
		return s, false, nil
	}
	if err != nil {
		err = script.Classify(err)
		if field, bad := errors.AsType[script.FieldError](err); bad { // no rate is to be set
			err = fmt.Errorf("%w: %w: restart a worker, whose first job corrects it, if this is a limit in flight", script.ErrInvalidRate, field)
		}
		return s, false, err
	}
	values, ok := reply.([]any)
	if !ok || len(values) < 6 || len(values)%5 != 1 {
		return s, false, fmt.Errorf("%w: %T for the state of a limit", script.ErrReply, reply)
	}
	number := func(i int) int64 {
		n, isInt := values[i].(int64)
		if !isInt || n < 0 {
			ok = false
		}
		return n
	}
	ms := func(i int) time.Duration { return time.Duration(number(i)) * time.Millisecond }
	s = Standing{Limit: Limit{Name: name, Slots: number(0), Lease: ms(1)}, Taken: number(2), Waiting: number(3), Pinned: number(4) == 1, Oldest: ms(5)}
	for i := 6; i < len(values); i += 5 {
		h := Holder{Ends: ms(i + 1), Held: ms(i + 2)}
		h.ID, _ = values[i].(string)
		h.Client, _ = values[i+4].(string)
		s.Holders = append(s.Holders, h)
	}
	if !ok {
		return s, false, fmt.Errorf("%w: to a check of %q", script.ErrReply, script.Clip(name))
	}
	return s, true, nil
}
