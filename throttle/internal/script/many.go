package script

import (
	"slices"
	"strings"
	"time"
)

// Shares reports whether a request by the short way may share a call with others: it is for one
// limiter, and asks for permits only.
func (s *Short) Shares() bool {
	return len(s.r.Members) == 1 && !s.r.Members[0].PerClient && len(s.r.Runs) == 1
}

// Shared is one call of many.lua for several requests by the short way.
type Shared struct {
	Keys   []string
	Args   []any
	Within time.Duration // for how long it may be served
	n      int
}

// Share makes one call of requests that may share a call. The call may be served for within. If a
// limiter expires sooner than that, the call may be served for as long as that limiter lives, but
// never for less than least. Redis keeps the reply to the call under the key reply. No other call
// uses that key at the same time. Calls that used it before have lower numbers, and are not
// served for longer.
func Share(reply string, no uint64, within, least time.Duration, parts []*Short) *Shared {
	n := len(parts)
	s := &Shared{Keys: make([]string, 1, 1+3*n), Args: make([]any, 6+n, 6+n+2*kindArgs), n: n}
	s.Keys[0] = reply
	var known, renews Remote
	most, of, kinds := within, make([]byte, n), make([]kind, 0, 8)
	for i, p := range parts {
		known = max(known, p.least)
		m, run := &p.r.Members[0], &p.r.Runs[0]
		value, name, permits := p.r.keysOf(0)
		k := kind{permits: run.Ns[0] * run.Count, rate: m.Rate, verify: p.verify}
		if m.Expires > 0 {
			within = min(within, max(m.Expires, least))
			k.expires, k.renew = m.Expires, p.renews == 0
			if p.renews > 0 && (renews == 0 || p.renews < renews) {
				renews = p.renews
			}
		}
		j := slices.Index(kinds, k)
		if j < 0 {
			j, kinds = len(kinds), append(kinds, k)
		}
		s.Keys, s.Args[6+i], of[i] = append(s.Keys, value, name, permits), m.Seal, byte('@'+j)
	}
	for _, k := range kinds {
		s.Args = append(s.Args, k.permits, k.rate, int64(k.verify), k.expires.Milliseconds(), k.renew)
	}
	var latest Remote
	if known > 0 {
		latest = known + Remote(within.Microseconds())
	} else {
		within = most
	}
	s.Within = within
	s.Args[0], s.Args[1], s.Args[2], s.Args[3] = BatchNo(no), int64(known), int64(latest), (within + replyBeyond).Milliseconds()
	s.Args[4], s.Args[5] = int64(renews), string(of)
	return s
}

// kind is everything in which parts of a shared call can be alike.
type kind struct {
	permits, rate int64
	verify        Verify
	expires       time.Duration
	renew         bool
}

// kindArgs is how many arguments a kind has.
const kindArgs = 5

// Declined is fast.lua's reply to each of the requests, if all have to go the long way.
func (s *Shared) Declined() []any {
	replies := make([]any, s.n)
	for i := range replies {
		replies[i] = int64(Unfit)
	}
	return replies
}

// Decode reads the reply of many.lua into what fast.lua would have replied to each.
func (s *Shared) Decode(reply any) ([]any, error) {
	text, ok := reply.(string)
	if !ok {
		return nil, badReply("%T where a string was expected", reply)
	}
	i := strings.LastIndexByte(text, ' ')
	said := text[i+1:]
	if i < 0 || len(said) != s.n {
		return nil, badReply("%q to %d requests", Clip(text), s.n)
	}
	var granted any = text[:i]
	replies := make([]any, s.n)
	for i := range said {
		if said[i] == '+' {
			replies[i] = granted
		} else {
			replies[i] = int64(said[i] - '0')
		}
	}
	return replies, nil
}
