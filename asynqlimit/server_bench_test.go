package asynqlimit_test

import (
	"testing"
	"time"
)

// arrangements say in which order ten tenants have enqueued 200 jobs: which tenant a job is of. In the second, the runs are
// longer than what the limit of a tenant gives at once. In the last, all jobs of a tenant come together.
var arrangements = map[string]func(job int) int{
	"in turn": func(job int) int { return job % 10 },
	"runs of 10, then in turn": func(job int) int {
		if job < 100 {
			return job / 10
		}
		return job % 10
	},
	"runs of 20, then in turn": func(job int) int {
		if job < 100 {
			return job / 20
		}
		return 5 + job%5
	},
	"runs of 20": func(job int) int { return job / 20 },
}

// idealExisting is how long the limits let so many jobs take, from the first start to the last, if in each window the first
// jobs start that both limits allow.
func idealExisting(jobs int, tenantOf func(job int) int) time.Duration {
	windows, left := 0, make([]int, jobs) // numbers of jobs
	for i := range left {
		left[i] = i
	}
	for ; len(left) > 0; windows++ {
		var later []int
		started, of := 0, map[int]int{}
		for _, job := range left {
			if tenant := tenantOf(job); started < existingRate && of[tenant] < tenantRate {
				started, of[tenant] = started+1, of[tenant]+1
			} else {
				later = append(later, job)
			}
		}
		left = later
	}
	return time.Duration(max(0, windows-1)) * (existingInterval + existingGuard)
}

// BenchmarkExistingServer reports how long 200 jobs take against what their limits allow, and how long 50 others wait beside
// them, against those alone.
func BenchmarkExistingServer(b *testing.B) {
	const jobs = 200
	for name, tenantOf := range arrangements {
		b.Run(name, func(b *testing.B) {
			ideal := idealExisting(jobs, tenantOf)
			for b.Loop() {
				alone := runExisting(b, 0, tenantOf, ideal/50)
				e := runExisting(b, jobs, tenantOf, ideal/50)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(ideal.Seconds(), "ideal-s")
				b.ReportMetric(e.took().Seconds()/ideal.Seconds(), "of-ideal")
				b.ReportMetric(float64(busiest(e.limited, existingInterval)), "busiest-second")
				b.ReportMetric(alone.p99().Seconds()*1000, "alone-p99-ms")
				b.ReportMetric(e.p99().Seconds()*1000, "free-p99-ms")
				b.ReportMetric(e.p99().Seconds()/alone.p99().Seconds(), "free-p99-of-alone")
			}
		})
	}
}
