package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestInFlightOnThePage: how many run at a time, who waits for that, on the page and in the
// API. Jobs that wait for a slot can run: nothing is wrong.
func TestInFlightOnThePage(t *testing.T) {
	b := openBrowser(t)
	s := newSite(t, 1, `
limits:
  slots: { in_flight: 2 }
  customer: { in_flight: 1, key: payload.account }
pools: [ { name: default, concurrency: 8 } ]
jobs: { "http:request": { limits: [slots, customer], hold: 0 } }
http: { allow_hosts: ["$API"] }
`, token)
	c, err := throttle.New(s.rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := c.InFlight("slots", throttle.Slots{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, err := f.Acquire(t.Context(), fmt.Sprint("theirs-", i)); err != nil {
			t.Fatal(err)
		}
	}
	s.enqueue(12, "default", "acme")
	type lineOf struct {
		Name                 string
		Slots, Taken, Parked int64
	}
	var got struct {
		Parked   int64
		Blocked  []any
		InFlight []struct {
			Name, Key     string
			Slots, Parked int64
			Values        []lineOf
		} `json:"in_flight"`
		Pools []struct {
			Queues []struct{ Parked, Retry int64 }
		}
	}
	s.await(patience, func() (bool, string) {
		resp, err := http.Get("http://" + s.addr + "/api/overview")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		return got.Parked == 12, fmt.Sprintf("%+v", got)
	})
	if len(got.InFlight) != 2 || got.InFlight[1].Name != "slots" || got.InFlight[0].Parked+got.InFlight[1].Parked != 12 {
		t.Fatalf("%+v", got)
	}
	if v := got.InFlight[1].Values; len(v) != 1 || v[0].Slots != 2 || v[0].Taken != 2 {
		t.Errorf("slots: %+v, want 2 of 2 taken", v)
	}
	if q := got.Pools[0].Queues[0]; len(got.Blocked) != 0 || q.Parked != 12 || q.Retry != 0 {
		t.Errorf("blocked %v, queue %+v: jobs that wait for a slot are parked", got.Blocked, q)
	}
	b.resize(1280, 900, "light")
	b.do(chromedp.Navigate("http://" + s.addr + "/"))
	b.until(patience, `document.querySelectorAll('#in-flight-rows tr').length === 3`)
	text := value[string](b, `document.getElementById("in-flight-section").textContent`)
	for _, want := range []string{"slots", "2 of 2", "customer", "per payload.account", "customer:acme", "1 for each value"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page shows %q, without %q", text, want)
		}
	}
	if wrong := value[string](b, `document.getElementById("wrong-list").textContent`); strings.Contains(wrong, "cannot run") {
		t.Errorf("the page says %q of jobs that wait for a slot", wrong)
	}
}
