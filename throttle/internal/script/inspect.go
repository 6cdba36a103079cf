package script

import "time"

// Standing is how a limiter stands for one client, as inspect.lua reports it. Its fields are
// those of throttle.Usage, to which it converts if R is throttle.Rate.
type Standing[R any] struct {
	Rate      R
	Used      int64
	Reserved  int64
	Available int64
	NextFree  time.Duration
	Paused    time.Duration
	Pinned    bool
	Soon      int64
	Later     time.Duration
	Clients   []string // ids
}

// DecodeStanding reads the reply of inspect.lua; false if there is no such limiter.
func DecodeStanding[R Rate[T, W], T, W ~int](reply any) (s Standing[R], found bool, err error) {
	if n, ok := reply.(int64); ok && n == -1 {
		return s, false, nil
	}
	parts, ok := reply.([]any)
	if !ok || len(parts) == 0 {
		return s, false, badReply("%T where a list was expected", reply)
	}
	words := make([]string, len(parts))
	for i, p := range parts {
		if words[i], ok = p.(string); !ok {
			return s, false, badReply("%T where a string was expected", p)
		}
	}
	d := decoder{rest: words[0]}
	ms := func() time.Duration { return time.Duration(d.next()) * time.Millisecond }
	flag := func() int64 { return int64(d.index(2)) }
	c := config{
		permits: d.next(), interval: ms(), kind: flag(), keepAlive: ms(), guard: d.duration(),
		smooth: flag() == 1, window: flag(), offset: d.duration(),
	}
	s = Standing[R]{
		Rate: rateOf[R](c),
		Used: d.next(), Reserved: d.next(), Available: d.next(), NextFree: d.duration(), Paused: d.duration(), Pinned: flag() == 1, Soon: d.next(), Later: d.duration(),
		Clients: words[1:],
	}
	return s, true, d.err
}
