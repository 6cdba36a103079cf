//go:build linux

package throttle_test

import (
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
)

func TestZZJain(t *testing.T) {
	f := fleetOfProcesses{fleet: fleet{rate: throttle.Rate{Permits: 50, Interval: time.Second}, clients: 8, goroutines: 64, length: 20 * time.Second}}
	o, _ := f.run(t, redistest.Start(t))
	logOutcome(t, f.fleet, o)
	var rows [21][8]int
	var tot [8]int
	for _, u := range o.uses {
		rows[int(u.at/(1010*time.Millisecond))][u.client]++
		tot[u.client]++
	}
	for i, r := range rows {
		t.Log(i, r)
	}
	t.Log(tot)
}
