// Package fair decides who is next when tenants share a limit by weight:
// start-time fair queueing. It has no clock, no lock and no I/O.
//
// Each job has a start tag S = max(V, F) and a finish tag S + cost/weight. F is the finish tag
// of its tenant's job before it. V, the virtual time, is the largest start tag that was served.
// The job with the least S goes next. So a tenant among others gets permits in proportion to
// its weight, and a tenant that is alone gets all of them. A tenant that comes back has no
// credit for the time when it had no jobs: it begins at V, like those who wait.
package fair

import (
	"container/heap"
	"math"
)

// Tenant is a tenant that has jobs in line.
type Tenant struct {
	Finish float64 // finish tag of its last job that was served; 0 if that is not above V
	Weight float64 // > 0
	Cost   int64   // of its next job, in permits, and about that of the jobs after it
	Jobs   int64   // in line
	Since  int64   // when its next job came: the earlier goes first if tags are equal
}

// Start is the start tag of the tenant's next job.
func (t Tenant) Start(v float64) float64 { return math.Max(v, t.Finish) }

// Deal divides permits among tenants, for whole jobs, at most that many. It returns what each
// tenant gets, and the virtual time after that. The last job may cost more than is left: it waits
// for the rest, and nobody else goes before it. A tenant whose start tag is above most gets
// nothing: there may be others before it. But a tenant at the virtual time is always served:
// nobody is before it.
func Deal(v float64, tenants []Tenant, permits, jobs int64, most float64) (got []int64, after float64) {
	got = make([]int64, len(tenants))
	q := queue{}
	for i, t := range tenants {
		if t.Jobs > 0 {
			q = append(q, next{i, t.Start(v), t.Since})
		}
	}
	heap.Init(&q)
	most, after = math.Max(most, v), v
	for ; len(q) > 0 && permits > 0 && jobs > 0; jobs-- {
		n := &q[0]
		t := tenants[n.tenant]
		cost := max(t.Cost, 1)
		if n.start > most {
			break
		}
		permits -= cost
		got[n.tenant] += cost
		after = math.Max(after, n.start)
		if got[n.tenant] >= t.Jobs*cost {
			heap.Pop(&q)
			continue
		}
		n.start += float64(cost) / t.Weight
		heap.Fix(&q, 0)
	}
	return got, after
}

// next is the next job of a tenant.
type next struct {
	tenant int
	start  float64
	since  int64
}

type queue []next

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, k int) bool {
	if q[i].start != q[k].start {
		return q[i].start < q[k].start
	}
	if q[i].since != q[k].since {
		return q[i].since < q[k].since
	}
	return q[i].tenant < q[k].tenant
}

func (q queue) Swap(i, k int) { q[i], q[k] = q[k], q[i] }

func (q *queue) Push(x any) { *q = append(*q, x.(next)) }

func (q *queue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}
