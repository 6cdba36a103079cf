package script

import (
	"strconv"
	"time"
)

// Short is a request by the short way: one call of fast.lua, which grants all of it
// or does nothing.
type Short struct {
	Keys []string
	Args []any
	runs []int64 // how many requests of each run
	look bool
	r    *Request
}

// Declined says why the short way did nothing.
type Declined int64

const (
	Unfit  Declined = 0 // what it does not know of may have happened
	NoRoom Declined = 1 // too little of a limit is free, and will be a moment later
)

// Fits reports whether the short way may do: one run of equal requests, perhaps
// with a prefetch, of limiters that are plain.
func (r *Request) Fits() bool {
	if len(r.Runs) == 0 || len(r.Runs) > 2 || r.Runs[0].Lead != 0 || len(r.Runs) == 2 && !r.Runs[1].Prefetch || len(r.Returns) > 0 {
		return false
	}
	for i, m := range r.Members {
		if !m.Plain || m.Refresh || r.Released[i] > 0 || r.Runs[0].Ns[i] > m.Rate { // never to be had; and sums of such numbers may not fit
			return false
		}
	}
	return true
}

// Short is the short way of a request that fits. Redis's clock is to show least
// at the least; look has it see to what need not be seen to each time.
func (r *Request) Short(least Remote, look bool) *Short {
	n := len(r.Members)
	s := &Short{look: look, Keys: make([]string, 1+3*n), Args: append(make([]any, 0, 4+4*n), r.No, int64(least)), r: r}
	var prefetch int64
	for _, run := range r.Runs {
		s.runs = append(s.runs, run.Count)
		if run.Prefetch {
			prefetch = run.Count
		}
	}
	s.Keys[0] = r.Keys[0]
	lives := false // some keys are to live for so long
	for i, m := range r.Members {
		keys, own := r.Keys[1+Span*i:], 0
		if m.PerClient {
			own, lives = 2, true
		}
		s.Keys[1+i], s.Keys[1+n+i], s.Keys[1+2*n+i] = keys[1+own], keys[0], keys[2+own]
		lives = lives || m.Renew
		s.Args = append(s.Args, m.Seal, r.Runs[0].Ns[i]*r.Runs[0].Count+prefetch, m.Rate)
	}
	if prefetch == 0 && !look && !lives {
		return s
	}
	s.Args = append(s.Args, prefetch > 0, look)
	for _, m := range r.Members {
		var ms, all int64
		switch {
		case m.PerClient:
			ms = (m.Span() + time.Millisecond - 1).Milliseconds()
		case m.Renew:
			all = m.Expires.Milliseconds()
		}
		s.Args = append(s.Args, ms, all)
	}
	return s
}

// Decode reads the reply of fast.lua. If it was declined there is no reply.
func (s *Short) Decode(reply any) (r Reply, declined bool, why Declined, err error) {
	switch reply := reply.(type) {
	case int64:
		return Reply{}, true, Declined(reply), nil
	case string:
		at, err := strconv.ParseInt(reply, 10, 64)
		if err != nil {
			return Reply{}, false, 0, badReply("%q where a time was expected", Clip(reply))
		}
		r = Reply{Now: Remote(at), Base: Remote(at)}
		s.granted(&r)
		return r, false, 0, nil
	}
	return Reply{}, false, 0, badReply("%T where a string was expected", reply)
}

// Repeated makes of what acquire.lua says to a request that fast.lua has served
// what it would have said itself.
func (s *Short) Repeated(r *Reply) { s.granted(r) }

func (s *Short) granted(r *Reply) {
	r.Status, r.Epochs, r.Changed = OK, make([]int64, len(s.r.Members)), make([]*Settings, len(s.r.Members))
	for i, m := range s.r.Members {
		r.Epochs[i] = m.Epoch
	}
	r.Runs = make([]Outcome, len(s.runs))
	for i, count := range s.runs {
		r.Runs[i].Grants = []Grant{{Count: count}}
	}
}
