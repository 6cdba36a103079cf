package plan

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestSlots: a task holds a slot of each limit in flight of its job, of its value where
// that has a key, and draws on the rates beside.
func TestSlots(t *testing.T) {
	js := jobsOf(t, `
limits: { all: { in_flight: 7 }, trial: { in_flight: 1, key: payload.x, dry_run: true }, account: { in_flight: 2, key: payload.account }, api: { rate: 10/1s } }
jobs: { x: { limits: [all, trial, api, account], permits: payload.n }, y: { limits: [all] } }
`)
	slotsOf := func(p Plan) string {
		var s []string
		for _, slot := range p.Slots {
			s = append(s, fmt.Sprintf("%s %d", slot.Limiter, slot.Limit.Slots.Limit))
		}
		return strings.Join(s, ", ")
	}
	p, err := js.Plan(Task{Type: "x", Payload: []byte(`{"account": "a:b", "n": 3}`)})
	if got := slotsOf(p); err != nil || got != "all 7, account:a%3Ab 2" || len(p.Draws) != 1 || p.Draws[0].Cost != 3 {
		t.Errorf("slots %s, draws %+v, %v", got, p.Draws, err)
	}
	if p, err = js.Plan(Task{Type: "y"}); err != nil || slotsOf(p) != "all 7" || len(p.Draws) != 0 {
		t.Errorf("slots %s, draws %+v, %v", slotsOf(p), p.Draws, err)
	}
	p, err = js.Plan(Task{Type: "x", Payload: []byte(`{"n": 3}`)})
	mistake, ok := errors.AsType[*Mistake](err)
	if !ok || mistake.Reason != BadKey || mistake.Limit != "account" || mistake.Path != "payload.account" || slotsOf(p) != "all 7" {
		t.Errorf("%+v, %v, slots %s", mistake, err, slotsOf(p))
	}
	if len(p.DrySlots) != 1 || p.DrySlots[0].Limit.Name != "trial" || !errors.As(p.DrySlots[0].Mistake, &mistake) || mistake.Limit != "trial" {
		t.Errorf("%+v: want one of trial, with what is wrong", p.DrySlots)
	}
}
