package throttle

import (
	"fmt"
	"strings"

	"github.com/jobthrottle/jobthrottle/throttle/internal/oracle"
)

// judgeMany checks what many.lua granted to each of those who shared a call: us as Redis's clock
// shows, us of the grants, and a character for each.
func (v *view) judgeMany(reply string, after []simulatedMember) {
	var now, at int64
	var said string
	if _, err := fmt.Sscan(reply, &now, &at, &said); err != nil || len(said) != len(v.before) {
		v.broken("many.lua answers", "%q to %d requests", reply, len(v.before))
		return
	}
	v.s.count["shared"] += len(said)
	if at != now || !strings.Contains(said, "+") { // it is a repeated reply, or grants nothing
		v.same(after)
		return
	}
	v.s.note("%s %smany %v: %s of %v", v.p.name, again(v.repeated), v.m.args[0], said, v.names)
	v.once(true, reply)
	for i := range v.before {
		one := &view{s: v.s, p: v.p, m: v.m, now: v.now, names: v.names[i : i+1], before: v.before[i : i+1]}
		b := v.before[i]
		if said[i] != '+' {
			one.same(after[i : i+1])
			continue
		}
		v.s.count["shared and granted"]++
		kind := int(v.m.args[5].(string)[i] - '@')
		permits, log := v.m.args[6+len(said)+kind*5].(int64), b.live(b.log, at) // see ARGV in many.lua
		if p := oracle.Plan(oracle.Ask{Limit: b.limit, Log: log, Permits: permits}); !p.Fits(at) && !v.s.steps {
			one.broken("exact", "%s: %d permits granted at once, and there is no room: %v", b.sl.name, permits, log)
		}
		b.sl.granted += permits
		one.audit(after[i:i+1], []oracle.Log{log.With(at, permits)}, at)
	}
}
