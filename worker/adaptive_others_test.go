package worker

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// other sends n requests in an interval, evenly, until stop is called.
func other(t *testing.T, url string, n int64, interval time.Duration) (stop func()) {
	ticker, done := time.NewTicker(interval/time.Duration(n)), make(chan struct{})
	client := &http.Client{Timeout: 5 * time.Second}
	var running sync.WaitGroup
	running.Go(func() {
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				reply, err := client.Get(url)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, reply.Body)
				reply.Body.Close()
			}
		}
	})
	return func() {
		close(done)
		running.Wait()
		client.CloseIdleConnections()
	}
}

func (f *fleet) learnt() operate.Learnt {
	f.t.Helper()
	learnt, adapts, err := operate.NewFleet(f.rdb).Learnt(f.t.Context(), "hidden")
	if err != nil || !adapts {
		f.t.Fatalf("adapts: %v, %v", adapts, err)
	}
	return learnt
}

// TestSomebodyElseUsesTheQuota: for 20 windows another client takes half of what an API
// accepts. When it has left, the limit comes back. The nightly run checks the promised figure,
// the median of five fleets: for 20 s of 80 a second there are at most 3 cuts, which explain
// reports, and 90 % of the quota is used again within 30 windows. It runs alone, too.
func TestSomebodyElseUsesTheQuota(t *testing.T) {
	if !nightly() {
		const recovers = 120
		// With few windows of a few requests 0.7 is enough: half would be stuck.
		if _, windows, _ := usedByOthers(t, 20, 250*time.Millisecond, "16/250ms", recovers, 0.7); windows > recovers {
			t.Errorf("70 %% of the quota is used again after %d windows, want at most %d", windows, recovers)
		}
		return
	}
	const fleets = 5
	var (
		cuts, windows [fleets]int
		told          atomic.Int64
	)
	t.Run("fleets", func(t *testing.T) { // ends when all of them have
		for i := range fleets {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				var tells bool
				if cuts[i], windows[i], tells = usedByOthers(t, 80, time.Second, "64/1s", 60, 0.9); tells { // the median of them is promised
					told.Add(1)
				}
			})
		}
	})
	slices.Sort(cuts[:])
	slices.Sort(windows[:])
	t.Logf("%v cuts, and 90 %% used again after %v windows; %d of %d times explain said that somebody else uses the quota", cuts, windows, told.Load(), fleets)
	if cuts[fleets/2] > 3 || windows[fleets/2] > 30 || told.Load() <= fleets/2 {
		t.Errorf("want 3 cuts and 30 windows at most, and that explain tells")
	}
}

// usedByOthers returns how often the limit was cut meanwhile, and for how many windows after
// that less than a share of the quota was used: more than recovers if that lasted to the end.
// It also returns whether explain reported it.
func usedByOthers(t *testing.T, quota int64, interval time.Duration, rate string, recovers int, share float64) (cuts, windows int, told bool) {
	const before, during = 30, 20 // windows
	jobs := int(quota) * (before + during + recovers + 20)
	f, api := hiddenFleet(t, quota, interval, rate, jobs)
	for range 2 {
		f.work(nil)
	}
	<-after(before * interval)
	known := f.learnt()
	stop := other(t, api.URL(), quota/2, interval)
	<-after(during * interval)
	e, err := NewInspector(f.rdb).Explain(t.Context(), fmt.Sprint(jobs-1), "")
	stop()
	if err != nil {
		t.Fatal(err)
	}
	told = strings.Contains(strings.Join(e.Text(), "\n"), "Somebody else uses the quota")
	since := f.learnt()
	cuts = int(since.Cuts - known.Cuts)
	if cuts == 0 && since.Refused > known.Refused {
		t.Errorf("%d were refused while the other took half, and the limit was never cut", since.Refused-known.Refused)
	}
	used := 0.0
	for used < share && windows <= recovers {
		accepted := api.Report().Accepted
		began := time.Now()
		ended := <-after(2 * interval)
		windows += 2
		used = float64(api.Report().Accepted-accepted) / (float64(quota) * float64(ended.Sub(began)) / float64(interval))
	}
	t.Logf("%s known before; %d cuts meanwhile; %.0f %% used again %d windows after it left; explain tells: %v; %+v", known.Known(), cuts, 100*used, windows, told, f.learnt())
	f.lossless()
	return cuts, windows, told
}

// TestFiveMinutes: two workers before an API that never says its limit, halves it and doubles
// it again: no job is lost, and none has used up a retry.
func TestFiveMinutes(t *testing.T) {
	if !nightly() {
		t.Skip("takes five minutes: set JOBTHROTTLE_NIGHTLY=1")
	}
	const quota = 80
	f, api := hiddenFleet(t, quota, time.Second, "10/1s", quota*300)
	var stops []func()
	for range 2 {
		stops = append(stops, f.work(nil))
	}
	for _, q := range []int64{quota / 2, quota} {
		<-after(100 * time.Second)
		api.SetQuota("hidden", q)
	}
	<-after(100 * time.Second)
	for _, stop := range stops {
		stop()
	}
	r := api.Report()
	t.Logf("%d accepted, %d refused (%.2f %%); %+v", r.Accepted, r.Refused, 100*float64(r.Refused)/float64(r.Accepted+r.Refused), f.learnt())
	f.lossless()
	info, err := f.inspector.GetQueueInfo("default")
	if err != nil {
		t.Fatal(err)
	}
	if rest := quota*300 - r.Accepted - info.Pending - info.Retry; rest != 0 || info.Active > 0 {
		t.Errorf("of %d jobs %d were accepted, %d are pending and %d wait: want all of them; %d are active", quota*300, r.Accepted, info.Pending, info.Retry, info.Active)
	}
}
