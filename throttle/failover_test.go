package throttle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/replicas"
)

// mortal is a replicated Redis whose master can die.
type mortal struct {
	connect  func() redis.UniversalClient
	cluster  bool
	master   *redistest.Server   // the one that dies
	replicas []*redistest.Server // of the master
	succeed  func()              // returns when another is master, and has a replica
}

// underSentinels is a master with two replicas, so that the one that is promoted has one.
func underSentinels(t *testing.T, _ string) mortal {
	s := redistest.StartSentinels(t, 2)
	return mortal{
		connect: func() redis.UniversalClient { return failoverClient(t, s) },
		master:  s.Master, replicas: s.Replicas, succeed: s.AwaitFailover,
	}
}

// inCluster is the master of a limiter with its one replica; the master comes back as the replica
// of that replica.
func inCluster(t *testing.T, limiter string) mortal {
	c := redistest.NewCluster(t)
	master := c.Master(limiter)
	return mortal{
		connect:  func() redis.UniversalClient { return clusterClient(t, c) },
		cluster:  true,
		master:   master,
		replicas: []*redistest.Server{c.Replica(limiter)},
		succeed: func() {
			c.AwaitFailover(limiter, master)
			master.Restart()
		},
	}
}

// cut ends the links to the replicas, which hang and so do not come back: nobody else gets what
// the master writes from now on.
func (m mortal) cut(t *testing.T) {
	t.Helper()
	for _, replica := range m.replicas {
		replica.Freeze()
	}
	rdb := redis.NewClient(&redis.Options{Addr: m.master.Addr})
	defer rdb.Close()
	if err := rdb.ClientKillByFilter(t.Context(), "TYPE", "replica").Err(); err != nil {
		t.Fatal(err)
	}
}

// TestMasterDies: kill -9 of the master of a limiter whose interval is longer than the failover,
// half way through its permits. What the replicas had not received is forgotten and granted
// again, unless grants wait for them. How much that is depends on how far the replicas lag: at
// worst the whole limit.
func TestMasterDies(t *testing.T) {
	t.Parallel()
	const permits, interval, length = 3000, 20 * time.Second, 15 * time.Second
	tests := []struct {
		name    string
		start   func(*testing.T, string) mortal
		lagging bool // the replicas are cut off before the last permits are granted
		waiting bool
		nightly bool
	}{
		{name: "sentinel, lag", start: underSentinels, lagging: true},
		{name: "sentinel, lag, wait", start: underSentinels, lagging: true, waiting: true},
		{name: "sentinel", start: underSentinels, nightly: true},
		{name: "sentinel, wait", start: underSentinels, waiting: true, nightly: true},
		{name: "cluster, lag", start: inCluster, lagging: true, nightly: true},
		{name: "cluster, lag, wait", start: inCluster, lagging: true, waiting: true},
		{name: "cluster", start: inCluster, nightly: true},
		{name: "cluster, wait", start: inCluster, waiting: true, nightly: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.nightly && !nightly() {
				t.Skip("takes long: set JOBTHROTTLE_NIGHTLY=1")
			}
			name := strings.NewReplacer("/", ":", ", ", "-").Replace(t.Name())
			m := tt.start(t, name)
			r := patient(permits, interval)
			s := startCallers(t, name, r, 20*time.Millisecond, length, func() (redis.Scripter, throttle.Options) {
				rdb := m.connect()
				if tt.waiting {
					return replicas.WaitReplicas(rdb, 1, 500*time.Millisecond), throttle.Options{Cluster: m.cluster}
				}
				return rdb, throttle.Options{}
			})
			s.await(permits / 2)
			if tt.lagging {
				m.cut(t)
				if !tt.waiting {
					s.await(permits / 6)
				}
			}
			m.master.Stop()
			for _, replica := range m.replicas {
				replica.Thaw()
			}
			m.succeed()
			o := s.finish()
			o.logChange(t, "death of the master", r)
			over := o.busiest(interval) - permits
			switch {
			case tt.waiting:
				checkBusiest(t, o, r)
			case over > permits:
				t.Errorf("%d permits above the limit of %d: want at most as many again", over, permits)
			case tt.lagging && over < permits/8:
				t.Errorf("%d permits above the limit: the replicas did not lag, and the test proves nothing", over)
			}
			t.Logf("%d permits granted twice", max(over, 0))
			if o.permits() < permits*9/10 {
				t.Errorf("%d of %d permits were used: want all but those that were on their way", o.permits(), permits)
			}
		})
	}
}
