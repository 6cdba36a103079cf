// Package jobview reads the state of jobs and limits for people: what pages, metrics and
// commands show. It decides nothing about jobs, and nothing that decides about jobs uses it.
// Workers and asynq servers with limits use it to show their own state.
package jobview

import (
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// View shows the limits and queues of a configuration, over the whole fleet. Its
// methods may be called concurrently.
type View struct {
	plans     *plan.Jobs
	throttle  *throttle.Client
	pools     func() []Pool
	inspector *Inspector
	limits    map[string]*plan.Limit // by name
	ages      ages
}

// Pool is an asynq server of this process.
type Pool struct {
	Name       string
	Slots      int            // handlers that run at a time
	MaxWaiting int            // jobs that may wait here beside them
	Weights    map[string]int // of the queues that it serves
}

// New returns a View of what is in rdb. It calls pools for this process's pools whenever it
// needs them. It makes no Redis call.
func New(rdb redis.UniversalClient, client *throttle.Client, plans *plan.Jobs, pools func() []Pool) *View {
	v := &View{plans: plans, throttle: client, pools: pools, inspector: NewInspector(rdb), limits: map[string]*plan.Limit{}}
	for _, l := range plans.Limits() {
		v.limits[l.Name] = l
	}
	v.inspector.WeightsFrom(func(limiter, tenant string) float64 {
		if l := v.limitOf(limiter); l != nil {
			return l.WeightOf(tenant)
		}
		return 1
	})
	return v
}

// ID is the process's key in per_client limits.
func (v *View) ID() string { return v.throttle.ID() }

// Fleet reads and pins limiters.
func (v *View) Fleet() *operate.Fleet { return v.inspector.fleet }

// Inspector reads which tasks wait for which limit.
func (v *View) Inspector() *Inspector { return v.inspector }
