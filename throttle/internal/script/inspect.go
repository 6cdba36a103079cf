package script

import "time"

// Standing is how a limiter stands for one client, as inspect.lua tells it.
type Standing struct {
	Permits                   int64
	Interval                  time.Duration
	PerClient                 bool
	KeepAlive, Guard          time.Duration
	Smooth, Calendar          bool
	Offset                    time.Duration
	Used, Reserved, Available int64
	NextFree, Paused          time.Duration
	Pinned                    bool
	Clients                   []string // ids
}

// DecodeStanding reads the reply of inspect.lua; false if there is no such limiter.
func DecodeStanding(reply any) (s Standing, found bool, err error) {
	if n, ok := reply.(int64); ok && n == -1 {
		return Standing{}, false, nil
	}
	parts, ok := reply.([]any)
	if !ok || len(parts) == 0 {
		return Standing{}, false, badReply("%T where a list was expected", reply)
	}
	words := make([]string, len(parts))
	for i, p := range parts {
		if words[i], ok = p.(string); !ok {
			return Standing{}, false, badReply("%T where a string was expected", p)
		}
	}
	d := decoder{rest: words[0]}
	ms := func() time.Duration { return time.Duration(d.next()) * time.Millisecond }
	yes := func() bool { return d.index(2) == 1 }
	s = Standing{
		Permits: d.next(), Interval: ms(), PerClient: yes(), KeepAlive: ms(), Guard: d.duration(),
		Smooth: yes(), Calendar: yes(), Offset: d.duration(),
		Used: d.next(), Reserved: d.next(), Available: d.next(), NextFree: d.duration(), Paused: d.duration(), Pinned: yes(),
		Clients: words[1:],
	}
	return s, true, d.err
}
