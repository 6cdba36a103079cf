package throttle

import (
	"fmt"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// replayedPart is one line's part of a shared call.
type replayedPart struct {
	l     *replayedLine
	call  *line.Call
	short *script.Short
}

// share makes a call together with those that other lines of the process make within a millisecond, as driver.sharing does.
func (l *replayedLine) share(call *line.Call, short *script.Short) {
	p := l.p
	p.parts = append(p.parts, replayedPart{l, call, short})
	if len(p.parts) > 1 {
		return
	}
	l.r.after(time.Millisecond, func() {
		parts := p.parts
		p.parts = nil
		l.r.fly(p, parts)
	})
}

// fly makes one call for several lines, and again until it is answered, or may not be served any more. Each time that it is
// to be made again, the lines hear that there is trouble.
func (r *replayed) fly(p *simulatedProcess, parts []replayedPart) {
	shorts := make([]*script.Short, len(parts))
	for i, part := range parts {
		shorts[i] = part.short
	}
	r.no++
	no := r.no
	reply := fmt.Sprintf("%s:reply:%s:shared%d", script.Prefix(parts[0].l.names[0]), p.name, no)
	shared := script.Share(reply, 1, line.ServedFor, line.LeastServed, shorts)
	first := r.local()
	var send func(again time.Duration)
	send = func(again time.Duration) {
		sent := r.local()
		p.send(r, message{"many", shared.Keys, shared.Args}, func(value any, err error) {
			var replies []any
			if err == nil {
				replies, err = shared.Decode(value)
			} else {
				err = script.Classify(err)
			}
			if err != nil && script.Transient(err) && r.local().Sub(first) < line.ServedFor {
				if sent == first && no%2 == 0 {
					err = nil // it only took too long
				}
				for _, part := range parts {
					part.l.step(line.Event{Kind: line.Troubled, Call: part.call, Answer: line.Reply{Err: err}})
				}
				r.after(again, func() { send(min(2*again, 500*time.Millisecond)) })
				return
			}
			p.knowsRedis = true
			if err != nil {
				replies = shared.Declined()
			}
			for i, part := range parts {
				part.l.step(line.Event{Kind: line.Answered, Call: part.call, Serves: true, Answer: line.Reply{Value: replies[i], Sent: sent, Shared: true}})
			}
		})
	}
	send(5 * time.Millisecond)
}
