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
	// Known: a repeated Delete deletes what was created since; a Delete forgets the changes
	// before it, and a limiter forgets all except the last 8: a change that is repeated then is
	// made again. A clock that is set forward by an hour ends the time of the reply.
	b.sl.changed++
	if v.repeated && !v.s.steps && b.epoch != a.epoch && v.m.script != "delete" && !b.sl.gone && b.sl.changed <= 8 {
		v.broken("a repeat is harmless", "%s: epoch %d, and %d before", b.sl.name, a.epoch, b.epoch)
	}
	if v.s.steps || !b.exists || !a.exists || a.reset != b.reset || v.m.script == "delete" {
		return
	}
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
