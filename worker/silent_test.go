package worker

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// silentRedis returns the configuration of a server that never answers, and a channel that is closed
// with its first connection.
func silentRedis(t *testing.T) (*config.Config, <-chan struct{}) {
	t.Helper()
	addr, connected := redistest.Silent(t)
	cfg := config.Default()
	cfg.Redis.Addrs = []string{addr}
	return cfg, connected
}

// TestSilentRedisAtStart: the error says for how long a Redis did not answer, and what to check.
func TestSilentRedisAtStart(t *testing.T) {
	cfg, _ := silentRedis(t)
	checkTrouble(t, startWith(t, cfg), cfg.Redis.Addrs[0], "no answer within 5s", "redis.addrs", "firewalls")
}

// TestStoppedBeforeRedisAnswers: a worker that is told to stop does not wait for a Redis that does not answer.
func TestStoppedBeforeRedisAnswers(t *testing.T) {
	cfg, connected := silentRedis(t)
	w, err := New(cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	<-connected
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Second): // the shortest timeout of go-redis is 3s
		t.Error("it waits for an answer")
		<-ended
	}
}
