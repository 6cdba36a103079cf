package throttle

import (
	"strings"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// judgeChange checks what a change of the configuration leaves of the limit's logs: everything
// that was used and, if the usage is not forgotten, the reservations that are near. A client
// drops the further ones from its own log when it comes again.
func (v *view) judgeChange(after []simulatedMember) {
	b, a := v.before[0], after[0]
	if v.repeated && !v.s.steps { // a clock that is set forward, and back again, ends the time of the reply
		v.s.count["repeated "+v.m.script]++
		if b.exists != a.exists || b.lives != a.lives || b.limit != a.limit || b.epoch != a.epoch || b.reset != a.reset {
			v.broken("a repeat is harmless", "%s: it was there: %v, %+v, epoch %d, reset %d, expires in %v; and is: %v, %+v, epoch %d, reset %d, expires in %v", b.sl.name,
				b.exists, b.limit, b.epoch, b.reset, b.lives, a.exists, a.limit, a.epoch, a.reset, a.lives)
		}
		v.same(after)
	}
	if v.s.steps || !b.exists || !a.exists || a.reset != b.reset || v.m.script == "delete" {
		return
	}
	b.sl.granted -= b.live(b.log, v.now).Sum() - b.live(a.log, v.now).Sum() // it dropped these
	v.s.left[b.key] = b.log
	for _, key := range v.s.logsOf(b.sl) {
		left, _ := v.s.log(key)
		want, got := b.live(v.s.left[key], v.now), b.live(left, v.now)
		if b.limit.PerClient && len(left) == 0 { // it may have expired, with reservations that an earlier change had dropped
			want = want.Until(b.epoch + max(near, b.far))
		}
		if a.epoch != b.epoch {
			stand := a.epoch + max(near, b.far)
			want = want.Until(stand)
			ahead := got.After(stand)
			if got = got.Until(stand); key == a.key && !a.limit.PerClient && len(ahead) > 0 {
				v.broken("changes reach everybody", "%s: %d reservations far ahead survived the change", b.sl.name, len(ahead))
			}
		}
		if why := b.limit.Kept(want, got, v.now, false); why != "" && !b.expires {
			v.broken("no use goes unrecorded", "%s: %s", key, why)
		}
		v.s.left[key] = left
	}
}

// logsOf are the keys of all logs of a limit that are known.
func (s *simulation) logsOf(l *simulatedLimit) (keys []string) {
	for key := range s.left {
		if strings.HasPrefix(key, script.Prefix(l.name)+":permits") {
			keys = append(keys, key)
		}
	}
	return keys
}
