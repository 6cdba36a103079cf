package asynqlimit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestOthersBehindAFullAccount: the first jobs in line for a limit are those of an account whose own limit is full. The permits
// that they leave go to the jobs of other accounts behind them, soon.
func TestOthersBehindAFullAccount(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	goOn := s.stopLimit("api", "20/1h")
	const full, accounts, each = 200, 4, 5
	for i := range full {
		s.enqueuePayload("x:job", fmt.Sprintf("full%03d", i), []byte(`{"account": 0}`))
	}
	for i := range accounts * each {
		s.enqueuePayload("x:job", fmt.Sprintf("other%03d", i), fmt.Appendf(nil, `{"account": %d}`, 1+i/each))
	}
	s.serve(member{yaml: `
limits: { api: { rate: 20/1h }, account: { rate: 5/1h, key: payload.account } }
jobs: { "x:": { limits: [api, account] } }
`})
	s.awaitWaiting("default", full+accounts*each)
	goOn()
	s.awaitStarts("full", 5, 5*time.Second)
	s.awaitStarts("other", 15, 5*time.Second) // 8 s, if the line rests after each visit
}

// TestOthersBehindThoseInFlight: the first jobs in line for a limit may run one at a time in a process, as of its latest start. The
// permits that they cannot use meanwhile go to the jobs behind them, soon.
func TestOthersBehindThoseInFlight(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	goOn := s.stopLimit("api", "20/1h")
	const first, others = 200, 15
	for i := range first {
		s.enqueue("x:job", fmt.Sprintf("first%03d", i))
	}
	for i := range others {
		s.enqueue("y:job", fmt.Sprintf("other%03d", i))
	}
	stop := s.serve(member{yaml: `
limits: { api: { rate: 20/1h } }
jobs: { "x:": { limits: [api], hold: 0 }, "y:": { limits: [api], hold: 0 } }
`})
	s.awaitWaiting("default", first+others)
	stop()
	over := make(chan struct{})
	defer close(over)
	s.serve(member{yaml: `
limits: { api: { rate: 20/1h } }
jobs: { "x:": { limits: [api], max_in_flight: 1, hold: 20s }, "y:": { limits: [api] } }
`, handle: func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "x:job" {
			<-over
		}
		return nil
	}})
	goOn()
	s.awaitStarts("other", others, 5*time.Second)
	if n := len(s.seen("first")); n != 1 {
		t.Errorf("%d jobs run that may run one at a time", n)
	}
}

// TestOthersBehindThoseWithoutSlots: the first jobs in line for a limit also need slots of a limit in flight, which others have for
// long. The permits that they leave go to those behind them, soon.
func TestOthersBehindThoseWithoutSlots(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	goOn := s.stopLimit("api", "20/1h")
	s.takeAllSlots("seat", 1)
	const first, others = 200, 15
	for i := range first {
		s.enqueue("x:job", fmt.Sprintf("first%03d", i))
	}
	for i := range others {
		s.enqueue("y:job", fmt.Sprintf("other%03d", i))
	}
	s.serve(member{yaml: `
limits: { api: { rate: 20/1h }, seat: { in_flight: 1 } }
jobs: { "x:": { limits: [api, seat] }, "y:": { limits: [api] } }
`})
	s.awaitWaiting("default", first+others)
	goOn()
	s.awaitStarts("other", others, 5*time.Second) // up to 11 s, if the line rests after each visit
}

// TestFullAccountWithALongHold: the first jobs in line for a limit are those of an account whose own limit is full, and would be free
// again within their hold. They wait in the server, but do not fill it: the jobs of another account behind them start soon, and
// so does a job that comes now and needs nothing.
func TestFullAccountWithALongHold(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	goOn := s.stopLimit("api", "1000/1s")
	s.useUp("account:0", "200/20s")
	const full, others = 60, 10
	for i := range full {
		s.enqueuePayload("x:job", fmt.Sprintf("full%03d", i), []byte(`{"account": 0}`))
	}
	for i := range others {
		s.enqueuePayload("x:job", fmt.Sprintf("other%03d", i), []byte(`{"account": 1}`))
	}
	s.serve(member{yaml: `
limits: { api: { rate: 1000/1s }, account: { rate: 200/20s, key: payload.account } }
jobs: { "x:": { limits: [api, account], hold: 30s } }
`, asynq: asynq.Config{Concurrency: 4}})
	s.awaitWaiting("default", full+others)
	goOn()
	s.awaitStarts("other", others, 6*time.Second) // 18 s, if those that wait for their account are all that the server can take
	s.enqueue("y:job", "free")
	s.awaitStarts("free", 1, 3*time.Second)
	if n := len(s.seen("full")); n > 0 {
		t.Errorf("%d jobs of the account started, though its limit is full", n)
	}
}

// useUp takes all permits of a limiter, which is new.
func (s *site) useUp(name, rate string) {
	s.t.Helper()
	l, r := s.newLimit(name, rate)
	if ok, err := l.TryAcquire(s.t.Context(), r.Permits); err != nil || !ok {
		s.t.Fatal("not all permits are free: ", err)
	}
}
