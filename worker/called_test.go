package worker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestCalledInVain: tasks that their line calls, and that cannot run as things
// stand, do not keep the permits from those behind them.
func TestCalledInVain(t *testing.T) {
	const each = 60
	const config = `
limits: { api: { rate: 50/1s }, accounts: { rate: 50/1s, key: payload.account } }
pools: [ { name: default, concurrency: 10 } ]
jobs: { "x:": { limits: [api] }, "http:": { limits: [api] }, "y:": { limits: [accounts] }%s }
log: { level: warn }
`
	parks := fmt.Sprintf(config, "") + `http: { allow_hosts: ["api.example.com"] }`
	tests := []struct{ name, bad, yaml, handled string }{
		{"no handler", "x:bad", parks, "x:good"},
		{"bad key", "x:bad", fmt.Sprintf(config, `, "x:bad": { limits: [accounts, api] }`), "x:"},
		{"bad cost", "x:bad", fmt.Sprintf(config, `, "x:bad": { limits: [api], permits: payload.tokens }`), "x:"},
		{"host not allowed", HTTPTaskType, fmt.Sprintf(config, ""), "x:"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			measures(t)
			f := newFleet(t, "")
			stop := f.workWith(parks, "x:")
			f.stopLimit()
			for i := range each {
				payload := []byte(`{"url": "http://api.example.com/"}`)
				if _, err := f.client.Enqueue(asynq.NewTask(tt.bad, payload), asynq.TaskID(fmt.Sprint("bad", i))); err != nil {
					t.Fatal(err)
				}
				f.enqueue("x:good", fmt.Sprint("good", i))
			}
			f.awaitInLine(2 * each)
			stop()
			f.workWith(tt.yaml, tt.handled)
			f.goOn()
			f.awaitStartsIn("good", each, 5*time.Second)
			if n := len(f.startsIn("bad")); n != 0 {
				t.Errorf("%d started that cannot run", n)
			}
			f.awaitInLine(0)
		})
	}
}

// TestCalledWhileFull: tasks that their line calls while max_in_flight is
// reached do not keep the permits from those behind them.
func TestCalledWhileFull(t *testing.T) {
	measures(t)
	f := newFleet(t, `
limits: { api: { rate: 50/1s } }
pools: [ { name: default, concurrency: 10 } ]
jobs: { "x:slow": { limits: [api], max_in_flight: 1, hold: 0 }, "x:good": { limits: [api] } }
log: { level: warn }
`)
	f.work(func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "x:slow" {
			<-time.After(3 * time.Second)
		}
		return nil
	})
	f.stopLimit()
	const each = 60
	for i := range each { // the first of the slow ones may run before it parks
		f.enqueue("x:slow", fmt.Sprint("slow", i))
		f.enqueue("x:good", fmt.Sprint("good", i))
	}
	f.awaitInLine(2 * each)
	f.goOn()
	f.awaitStartsIn("good", each, 5*time.Second)
	f.awaitStartsIn("slow", 2, 10*time.Second) // they go on too
}

// stopLimit pauses the limit api.
func (f *fleet) stopLimit() {
	f.t.Helper()
	api := f.limiter("api")
	f.awaitThat(5*time.Second, func() (bool, string) {
		_, err := api.Config(f.t.Context())
		return err == nil, fmt.Sprint(err)
	})
	if err := api.Pause(f.t.Context(), time.Hour); err != nil {
		f.t.Fatal(err)
	}
}

// awaitInLine waits until n tasks are in line for the limit api, or called from there.
func (f *fleet) awaitInLine(n int64) {
	f.t.Helper()
	f.awaitThat(20*time.Second, func() (bool, string) {
		got := f.inLine("api")
		return got == n, fmt.Sprintf("%d in line, want %d", got, n)
	})
}
