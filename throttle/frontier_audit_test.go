package throttle

import (
	"fmt"
	"strings"
)

// auditFrontier checks what a limiter's hash says about its log, against the log: the load at the
// frontier, what lies after it and what it begins with; and that even the smallest request has no
// room before it.
func auditFrontier(after state, now int64) error {
	oldest := ""
	if len(after.records) > 0 {
		oldest = after.records[0].member
	}
	rest, ok := strings.CutPrefix(after.frontier, after.seal+" "+after.value+" "+oldest+" ")
	if !ok {
		return nil // it no longer holds
	}
	var last, ahead, load, least, later, held int64
	if _, err := fmt.Sscanf(rest, "%d %d %d %d %d %d ", &last, &ahead, &load, &least, &later, &held); err != nil {
		return fmt.Errorf("frontier %q: %w", rest, err)
	}
	known := strings.SplitN(rest, " ", 7)[6]
	at, W := last+ahead, after.model.span()
	var wantLoad, wantLater, wantHeld int64
	var falls strings.Builder
	for _, r := range after.records {
		switch {
		case r.at > at:
			wantLater++
		case r.at > at-W:
			wantLoad += r.n
			falls.WriteString(r.member)
		}
		if r.at == at {
			wantHeld += r.n
		}
	}
	if load != wantLoad || later != wantLater || held != wantHeld || !strings.HasPrefix(falls.String(), known) {
		return fmt.Errorf("frontier in %d us for %d: load %d, later %d, held %d, known %d of %d bytes; the log has %d, %d, %d, the same: %v",
			at-now, least, load, later, held, len(known), falls.Len(), wantLoad, wantLater, wantHeld, strings.HasPrefix(falls.String(), known))
	}
	m := after.with(after.records)
	m.pause = 0
	if t := earliest([]*model{m}, []int64{least}, now, least); t < at {
		return fmt.Errorf("frontier in %d us for %d: there is room in %d us", at-now, least, t-now)
	}
	return nil
}
