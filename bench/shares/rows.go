package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

const shared = "rate: %s, share: payload.tenant, weights: { a: 5, b: 3 }"

// newcomer: 1500 jobs of one tenant come before 15 of another. All wait before the workers
// start.
func newcomer(ctx context.Context) (text string, ok bool, err error) {
	s, err := newSite(fmt.Sprintf(shared, "100/1s"))
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, jobs := range [][]payload{many("hog", 1500), many("small", 15)} {
		if err := s.enqueue(ctx, jobs); err != nil {
			return "", false, err
		}
	}
	if err := s.serve(3); err != nil {
		return "", false, err
	}
	if _, err := s.await(ctx, 1, time.Minute, nil); err != nil {
		return "", false, err
	}
	small, err := s.await(ctx, 15, time.Minute, of("small"))
	if err != nil {
		return "", false, err
	}
	took := time.Duration(small[14].At - s.seen(nil)[0].At)
	return fmt.Sprintf("newcomer  15 jobs behind 1500 of another tenant, 100/1s: done %.2f s after the first job started (<= 1.5)", took.Seconds()), took <= 1500*time.Millisecond, nil
}

const (
	rounds    = 4
	perTenant = 30
	apart     = 6 * time.Second
)

// nine: tenants with few jobs, alone, and beside one with very many.
func nine(ctx context.Context, hog int) (string, bool, error) {
	alone, _, err := nineBeside(ctx, 0)
	if err != nil {
		return "", false, err
	}
	beside, speed, err := nineBeside(ctx, hog)
	if err != nil {
		return "", false, err
	}
	ratio := beside.Seconds() / alone.Seconds()
	return fmt.Sprintf("nine      p95 wait of nine tenants with %d jobs every %v at 100/1s: %.2f s alone, %.2f s beside one with %d jobs: %.2f (<= 2); jobs reach the line at %.0f/s (>= 3000)",
		perTenant, apart, alone.Seconds(), beside.Seconds(), hog, ratio, speed), ratio <= 2 && speed >= 3000, nil
}

func nineBeside(ctx context.Context, hog int) (p95 time.Duration, speed float64, err error) {
	s, err := newSite(fmt.Sprintf(shared, "100/1s"))
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.enqueue(ctx, many("hog", hog)); err != nil {
		return 0, 0, err
	}
	if err := s.serve(4); err != nil {
		return 0, 0, err
	}
	if hog > 0 {
		if _, err := s.await(ctx, 1, time.Minute, nil); err != nil {
			return 0, 0, err
		}
		began := time.Now()
		for {
			n, err := s.pending(ctx)
			if err != nil {
				return 0, 0, err
			}
			if n < int64(hog)/100 {
				speed = float64(hog) / time.Since(began).Seconds()
				break
			}
			if time.Since(began) > time.Minute {
				return 0, 0, fmt.Errorf("%d of %d jobs are not in line after a minute", n, hog)
			}
			time.Sleep(5 * time.Millisecond)
		}
	} else {
		time.Sleep(2 * time.Second)
	}
	isNine := func(s start) bool { return s.Tenant != "hog" }
	for range rounds {
		var jobs []payload
		for range perTenant {
			for n := range 9 {
				jobs = append(jobs, payload{Tenant: fmt.Sprint("few", n)})
			}
		}
		next := time.After(apart)
		if err := s.enqueue(ctx, jobs); err != nil {
			return 0, 0, err
		}
		<-next
	}
	starts, err := s.await(ctx, rounds*9*perTenant, time.Minute, isNine)
	if err != nil {
		return 0, 0, err
	}
	var waits []time.Duration
	for _, st := range starts {
		waits = append(waits, time.Duration(st.At-st.Sent))
	}
	slices.Sort(waits)
	return waits[len(waits)*95/100], speed, nil
}

// weights: three tenants, 5:3:1, whose jobs cost different numbers of permits.
func weights(ctx context.Context) (text string, ok bool, err error) {
	s, err := newSite(fmt.Sprintf(shared, "1000/1s"))
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	random := rand.New(rand.NewPCG(1, 2))
	var jobs []payload
	for range 5000 {
		jobs = append(jobs, payload{Tenant: "a", Cost: 1 + random.Int64N(9)}, payload{Tenant: "b", Cost: 1 + random.Int64N(5)}, payload{Tenant: "c", Cost: 1 + random.Int64N(3)})
	}
	if err := s.enqueue(ctx, jobs); err != nil {
		return "", false, err
	}
	if err := s.serve(4); err != nil {
		return "", false, err
	}
	if _, err := s.await(ctx, 1, time.Minute, nil); err != nil {
		return "", false, err
	}
	time.Sleep(14 * time.Second)
	// The first second's permits are granted before there is a line.
	all := s.seen(nil)
	from := all[0].At + 2*int64(time.Second)
	got := map[string]float64{}
	sum := 0.0
	for _, st := range all {
		if st.At >= from && st.At < from+10*int64(time.Second) {
			got[st.Tenant] += float64(st.Cost)
			sum += float64(st.Cost)
		}
	}
	worst, x, xx := 0.0, 0.0, 0.0
	for tenant, w := range map[string]float64{"a": 5, "b": 3, "c": 1} {
		worst = max(worst, math.Abs(got[tenant]/(sum*w/9)-1))
		x, xx = x+got[tenant]/w, xx+got[tenant]/w*got[tenant]/w
	}
	jain := x * x / (3 * xx)
	return fmt.Sprintf("weights   5:3:1, costs 1 to 9, 1 to 5, 1 to 3, 1000/1s: %.0f, %.0f and %.0f permits in 10 s, %.2f %% off (<= 2), Jain %.4f (>= 0.99), %.1f %% of the limit used (>= 95)",
		got["a"], got["b"], got["c"], 100*worst, jain, 100*sum/10_000), worst <= 0.02 && jain >= 0.99 && sum >= 9_500, nil
}

// alone: one tenant, with which nobody shares the limit.
func alone(ctx context.Context) (text string, ok bool, err error) {
	s, err := newSite(fmt.Sprintf(shared, "500/1s"))
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.enqueue(ctx, many("c", 8000)); err != nil {
		return "", false, err
	}
	if err := s.serve(4); err != nil {
		return "", false, err
	}
	if _, err := s.await(ctx, 1, time.Minute, nil); err != nil {
		return "", false, err
	}
	time.Sleep(13 * time.Second)
	all := s.seen(nil)
	whole := time.Second + throttle.Rate{Permits: 500, Interval: time.Second}.DefaultGuard()
	from := all[0].At + int64(whole)
	n := 0
	for _, st := range all {
		if st.At >= from && st.At < from+int64(10*whole) {
			n++
		}
	}
	used := float64(n) / 5000
	return fmt.Sprintf("alone     one tenant: %.2f %% of the limit used (>= 99)", 100*used), used >= 0.99, nil
}

const active = 10_000

// memory: how much memory 10,000 tenants need that got permits and wait, beyond the same jobs
// without shares.
func memory(ctx context.Context) (string, bool, error) {
	with, err := parkedBytes(ctx, fmt.Sprintf(shared, "2000/1s"))
	if err != nil {
		return "", false, err
	}
	without, err := parkedBytes(ctx, "rate: 2000/1s")
	if err != nil {
		return "", false, err
	}
	each := (with - without) / active
	return fmt.Sprintf("memory    %d tenants with a job in line, names of 16 bytes: %.0f bytes each, beyond the same jobs without shares (<= 250)", active, each), each <= 250, nil
}

// parkedBytes is the memory of Redis with two jobs of each tenant; one of them is done.
func parkedBytes(ctx context.Context, limit string) (bytes float64, err error) {
	s, err := newSite(limit)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	client, err := throttle.New(s.rdb, throttle.Options{})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	l, err := client.Limiter("api")
	if err != nil {
		return 0, err
	}
	var jobs []payload
	for range 2 {
		for n := range active {
			jobs = append(jobs, payload{Tenant: fmt.Sprintf("tenant-%09d", n)})
		}
	}
	if err := s.enqueue(ctx, jobs); err != nil {
		return 0, err
	}
	if err := s.serve(3); err != nil {
		return 0, err
	}
	if _, err := s.await(ctx, active, time.Minute, nil); err != nil {
		return 0, err
	}
	if err := l.Pause(ctx, time.Hour); err != nil {
		return 0, err
	}
	time.Sleep(2 * time.Second)
	for _, stop := range s.stop {
		stop()
	}
	s.stop = nil
	left := 2*active - len(s.seen(nil))
	m, err := s.server.Memory(ctx)
	if err != nil {
		return 0, err
	}
	// A job takes this many bytes. It corrects for the few jobs more that one run has done than
	// the other.
	const job = 800
	return float64(m.Used) - job*float64(left-active), nil
}

// cpu: what a job costs Redis with 10,000 active tenants, and without shares.
func cpu(ctx context.Context) (string, bool, error) {
	var ratios []float64
	var texts []string
	for range 3 {
		with, err := cpuPerJob(ctx, fmt.Sprintf(shared, "1000/1s"))
		if err != nil {
			return "", false, err
		}
		without, err := cpuPerJob(ctx, "rate: 1000/1s")
		if err != nil {
			return "", false, err
		}
		ratios = append(ratios, with/without)
		texts = append(texts, fmt.Sprintf("%.0f/%.0f", with, without))
	}
	slices.Sort(ratios)
	return fmt.Sprintf("cpu       Redis per job with %d active tenants / without shares, in us: %s; median ratio %.2f (<= 1.3)", active, strings.Join(texts, " "), ratios[1]), ratios[1] <= 1.3, nil
}

func cpuPerJob(ctx context.Context, limit string) (us float64, err error) {
	s, err := newSite(limit)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var jobs []payload
	for n := range active {
		jobs = append(jobs, payload{Tenant: fmt.Sprintf("tenant-%09d", n)})
	}
	if err := s.enqueue(ctx, jobs); err != nil {
		return 0, err
	}
	before, err := s.server.Usage(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.serve(3); err != nil {
		return 0, err
	}
	if _, err := s.await(ctx, active*9/10, time.Minute, nil); err != nil {
		return 0, err
	}
	after, err := s.server.Usage(ctx)
	if err != nil {
		return 0, err
	}
	return float64(after.Sub(before).CPU.Microseconds()) / float64(len(s.seen(nil))), nil
}
