package worker

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
)

// TestOptionsSetAllOfAsynq: Options and the pool's configuration set each field of asynq.Config.
func TestOptionsSetAllOfAsynq(t *testing.T) {
	cfg := config.Default()
	cfg.Pools[0].Strict = true
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nobody calls it
	t.Cleanup(func() { rdb.Close() })
	w, err := NewWith(cfg, Options{
		Redis:        rdb,
		ErrorHandler: asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) {}), IsFailure: func(error) bool { return true },
		RetryDelay: asynq.DefaultRetryDelayFunc, BaseContext: context.Background, HealthCheck: func(error) {},
		GroupAggregator: asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task { return nil }), GroupMaxSize: 7, JanitorBatchSize: 8, LogLevel: asynq.ErrorLevel,
		Intervals: Intervals{time.Second, time.Second, time.Second, time.Second, time.Second, time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	made := w.pools[0].asynq(cfg.Pools[0])
	for f, v := range reflect.ValueOf(made).Fields() {
		if v.IsZero() {
			t.Errorf("%s is not set", f.Name)
		}
	}
	if made.JanitorBatchSize != 8 || made.LogLevel != asynq.ErrorLevel {
		t.Errorf("batches of %d and level %v, want 8 and %v", made.JanitorBatchSize, made.LogLevel, asynq.ErrorLevel)
	}
	w.opts = Options{}
	if level := w.pools[0].asynq(cfg.Pools[0]).LogLevel; level != asynq.WarnLevel {
		t.Errorf("level %v without options, want %v", level, asynq.WarnLevel)
	}
}
