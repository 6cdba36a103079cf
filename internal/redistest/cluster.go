package redistest

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// settleTime is how long servers may take at most to find each other: seconds, and more on a
// busy machine.
const settleTime = time.Minute

const (
	clusterMasters = 3
	clusterSlots   = 16384
)

// Cluster is a Redis Cluster that a test owns. It is not safe for concurrent use.
type Cluster struct {
	Nodes []*Server // the first three began as masters, and each of the others as the replica of the node three before it

	tb      testing.TB
	clients map[*Server]*redis.Client
}

// StartCluster runs a Redis Cluster of three masters without replicas for the length of the
// test, and returns their addresses.
func StartCluster(tb testing.TB) []string {
	tb.Helper()
	return newCluster(tb, clusterMasters).Addrs()
}

// NewCluster runs a Redis Cluster of three masters, each with a replica, for the length of the
// test. If a node is silent for two seconds, the others give it up. args are redis-server's.
func NewCluster(tb testing.TB, args ...string) *Cluster {
	tb.Helper()
	return newCluster(tb, 2*clusterMasters, args...)
}

// busPort gives a node a port for the others. Redis's own choice, port + 10000, may not exist; before version 7 there is no other.
func busPort(tb testing.TB) []string {
	if said, err := exec.Command("redis-server", "--version").Output(); err == nil && strings.Contains(string(said), " v=6.") {
		return nil
	}
	_, port, _ := net.SplitHostPort(FreeAddr(tb))
	return []string{"--cluster-port", port}
}

// newCluster returns when all slots are served and all replicas are in sync.
func newCluster(tb testing.TB, nodes int, args ...string) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb, clients: map[*Server]*redis.Client{}}
	for range nodes {
		node := launch(tb, func(port string) []string {
			return slices.Concat(inMemory(port), busPort(tb), []string{
				"--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
				"--repl-diskless-sync-delay", "0",
				"--repl-ping-replica-period", "1", // nodes only report replicas that have received something
			}, args)
		})
		c.Nodes = append(c.Nodes, node)
		rdb := redis.NewClient(&redis.Options{Addr: node.Addr})
		tb.Cleanup(func() { rdb.Close() })
		c.clients[node] = rdb
	}
	c.introduce()
	for i, replica := range c.Nodes[clusterMasters:] {
		c.must(c.clients[replica].ClusterReplicate(c.ctx(), c.id(c.Nodes[i])).Err())
	}
	replicas := nodes/clusterMasters - 1
	testkit.Eventually(tb, settleTime, "a Redis Cluster in which all nodes are well", func() bool {
		return !slices.ContainsFunc(c.Nodes, func(n *Server) bool { return !c.well(n, replicas) })
	})
	return c
}

// introduce distributes the slots and makes the nodes known to each other.
func (c *Cluster) introduce() {
	c.tb.Helper()
	for i, node := range c.Nodes {
		c.must(c.clients[node].Do(c.ctx(), "cluster", "set-config-epoch", i+1).Err())
		if i < clusterMasters {
			c.must(c.clients[node].ClusterAddSlotsRange(c.ctx(), i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1).Err())
		}
	}
	host, _ := c.Nodes[0].HostPort()
	info := strings.Fields(c.nodes(c.Nodes[0])[0])[1] // host:port@bus
	port, bus, _ := strings.Cut(info[strings.LastIndexByte(info, ':')+1:], "@")
	for _, node := range c.Nodes[1:] {
		c.must(c.clients[node].Do(c.ctx(), "cluster", "meet", host, port, bus).Err())
	}
	testkit.Eventually(c.tb, settleTime, "nodes that know each other", func() bool {
		return !slices.ContainsFunc(c.Nodes, func(n *Server) bool {
			lines := c.nodes(n)
			return len(lines) != len(c.Nodes) || strings.Contains(strings.Join(lines, "\n"), "handshake")
		})
	})
}

// well reports whether a node sees all slots served, and is in sync with its master, or its
// replicas with it.
func (c *Cluster) well(node *Server, replicas int) bool {
	state, err := c.clients[node].ClusterInfo(c.ctx()).Result()
	if err != nil || !strings.Contains(state, "cluster_state:ok") || !strings.Contains(state, fmt.Sprintf("cluster_slots_ok:%d", clusterSlots)) {
		return false
	}
	role, err := c.clients[node].Do(c.ctx(), "role").Slice()
	if err != nil {
		return false
	}
	return role[0] == "master" && len(role[2].([]any)) == replicas || role[0] == "slave" && role[3] == "connected"
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, node := range c.Nodes {
		addrs = append(addrs, node.Addr)
	}
	return addrs
}

// Slot is the slot of a key.
func (c *Cluster) Slot(key string) int {
	c.tb.Helper()
	slot, err := c.any().ClusterKeySlot(c.ctx(), key).Result()
	c.must(err)
	return int(slot)
}

// Master is the node that has a key, according to the live nodes.
func (c *Cluster) Master(key string) *Server { c.tb.Helper(); return c.awaitOwners(key, 1)[0] }

// Replica is the first replica of the master of a key.
func (c *Cluster) Replica(key string) *Server { c.tb.Helper(); return c.awaitOwners(key, 2)[1] }

// awaitOwners waits until that many nodes have a key. A node may not have heard of a replica
// yet. While a slot moves, a node may know no master: one has already given the slot up, and
// the other has not yet claimed it.
func (c *Cluster) awaitOwners(key string, atLeast int) (owners []*Server) {
	c.tb.Helper()
	slot := c.Slot(key)
	testkit.Eventually(c.tb, settleTime, fmt.Sprintf("%d nodes that have slot %d", atLeast, slot), func() bool {
		owners = c.owners(slot)
		return len(owners) >= atLeast
	})
	return owners
}

// owners are the master and the replicas of a slot; none if the node that is asked knows none.
func (c *Cluster) owners(slot int) []*Server {
	c.tb.Helper()
	//lint:ignore SA1019 CLUSTER SHARDS, which replaces it, lists nodes that are dead as well
	ranges, err := c.any().ClusterSlots(c.ctx()).Result()
	c.must(err)
	for _, r := range ranges {
		if r.Start > slot || slot > r.End {
			continue
		}
		var owners []*Server
		for _, n := range r.Nodes {
			owners = append(owners, c.Nodes[slices.IndexFunc(c.Nodes, func(s *Server) bool { return s.Addr == n.Addr })])
		}
		return owners
	}
	return nil
}

// failoverTime is how long a replica tries to take over before it gives up: Redis's own
// constant for CLUSTER FAILOVER.
const failoverTime = 5 * time.Second

// Failover lets the replica of a key's master take over without loss, as an operator does
// before maintenance. It tries again if the replica gave up. That happens when another master
// refused its vote because it had not yet heard who has the slot.
func (c *Cluster) Failover(key string) {
	c.tb.Helper()
	replica := c.Replica(key)
	var asked time.Time
	testkit.Eventually(c.tb, settleTime, "the replica takes over", func() bool {
		if c.Master(key) == replica {
			return true
		}
		if time.Since(asked) > failoverTime && !slices.Contains(c.masters(), replica) {
			asked = time.Now()
			c.must(c.clients[replica].ClusterFailover(c.ctx()).Err())
		}
		return false
	})
}

// AwaitFailover returns when another node than the given one has the key.
func (c *Cluster) AwaitFailover(key string, dead *Server) {
	c.tb.Helper()
	testkit.Eventually(c.tb, settleTime, "another master", func() bool { return c.Master(key) != dead })
}

// any is a client of a live node.
func (c *Cluster) any() *redis.Client {
	c.tb.Helper()
	for _, node := range c.Nodes {
		if rdb := c.clients[node]; node.cmd != nil && rdb.Ping(c.ctx()).Err() == nil {
			return rdb
		}
	}
	c.tb.Fatal("no node of the Redis Cluster answers")
	return nil
}

func (c *Cluster) nodes(node *Server) []string {
	c.tb.Helper()
	text, err := c.clients[node].ClusterNodes(c.ctx()).Result()
	c.must(err)
	return strings.Split(strings.TrimSpace(text), "\n")
}

func (c *Cluster) id(node *Server) string {
	c.tb.Helper()
	id, err := c.clients[node].ClusterMyID(c.ctx()).Result()
	c.must(err)
	return id
}

func (c *Cluster) ctx() context.Context { return context.Background() } // also for Cleanup

func (c *Cluster) must(err error) {
	c.tb.Helper()
	if err != nil {
		c.tb.Fatalf("redis cluster: %v", err)
	}
}
