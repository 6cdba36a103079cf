package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// SentinelMaster is the name by which the sentinels of StartSentinels know the master.
const SentinelMaster = "jobs"

// Sentinels is a master with replicas, watched by three sentinels, all of which a test owns.
type Sentinels struct {
	Master    *Server // at the beginning
	Replicas  []*Server
	Sentinels []*Server

	tb testing.TB
}

// StartSentinels runs a master with that many replicas and three sentinels for the length of
// the test. It returns when all know each other. A master that is silent for half a second is
// given up. args are those of the master and the replicas.
func StartSentinels(tb testing.TB, replicas int, args ...string) *Sentinels {
	tb.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	s := &Sentinels{tb: tb, Master: New(tb, args...)}
	host, port := s.Master.HostPort()
	for range replicas {
		s.Replicas = append(s.Replicas, New(tb, append([]string{"--replicaof", host, port}, args...)...))
	}
	master := redis.NewClient(&redis.Options{Addr: s.Master.Addr})
	defer master.Close()
	testkit.Eventually(tb, settleTime, "replicas in step", func() bool {
		in, err := master.Wait(context.Background(), replicas, 0).Result()
		return err == nil && int(in) == replicas
	})
	for range 3 {
		s.Sentinels = append(s.Sentinels, launch(tb, func(sentinelPort string) []string {
			// A sentinel writes into its configuration file, so each has its own.
			file := filepath.Join(tb.TempDir(), "sentinel.conf")
			text := fmt.Sprintf("port %[1]s\nsentinel monitor %[2]s %[3]s %[4]s 2\nsentinel down-after-milliseconds %[2]s 500\nsentinel failover-timeout %[2]s 5000\n",
				sentinelPort, SentinelMaster, host, port)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				tb.Fatal(err)
			}
			return []string{file, "--sentinel"}
		}))
	}
	for _, sentinel := range s.Sentinels {
		rdb := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr})
		defer rdb.Close()
		testkit.Eventually(tb, settleTime, "sentinels that know each other", func() bool {
			others, err := rdb.Sentinels(context.Background(), SentinelMaster).Result()
			known, err2 := rdb.Replicas(context.Background(), SentinelMaster).Result()
			return err == nil && err2 == nil && len(others) == 2 && len(known) == replicas
		})
	}
	return s
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinels) Addrs() []string {
	var addrs []string
	for _, sentinel := range s.Sentinels {
		addrs = append(addrs, sentinel.Addr)
	}
	return addrs
}

// AwaitFailover returns when the sentinels name another master than at the beginning.
func (s *Sentinels) AwaitFailover() {
	s.tb.Helper()
	rdb := redis.NewSentinelClient(&redis.Options{Addr: s.Sentinels[0].Addr})
	defer rdb.Close()
	testkit.Eventually(s.tb, settleTime, "another master", func() bool {
		addr, err := rdb.GetMasterAddrByName(context.Background(), SentinelMaster).Result()
		return err == nil && len(addr) == 2 && net.JoinHostPort(addr[0], addr[1]) != s.Master.Addr
	})
}
