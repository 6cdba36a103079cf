package throttle

import (
	"context"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
	"github.com/jobthrottle/jobthrottle/throttle/replicas"
)

// Acquirer is what [Transport] needs of a limit.
//
// Deprecated: use [httplimit.Acquirer].
type Acquirer = httplimit.Acquirer

// Transport is [httplimit.Transport].
//
// Deprecated: use [httplimit.Transport].
func Transport(base http.RoundTripper, a Acquirer) http.RoundTripper {
	return httplimit.Transport(base, a)
}

// RetryAfter is [httplimit.RetryAfter].
//
// Deprecated: use [httplimit.RetryAfter].
func RetryAfter(resp *http.Response) (time.Duration, bool) { return httplimit.RetryAfter(resp) }

// ReplicasError says that too few replicas acknowledged a script in time.
//
// Deprecated: use [replicas.ReplicasError].
type ReplicasError = replicas.ReplicasError

// WaitReplicas is [replicas.WaitReplicas].
//
// Deprecated: use [replicas.WaitReplicas].
func WaitReplicas(rdb redis.UniversalClient, n int, timeout time.Duration) redis.Scripter {
	return replicas.WaitReplicas(rdb, n, timeout)
}

// Inspect reads how the limiter stands; of a PerClient limiter, how it stands for this Client. It
// changes nothing in Redis.
//
// Deprecated: use operate.Fleet.Inspect, or its InspectClient for one Client's figures.
func (l *Limiter) Inspect(ctx context.Context) (Usage, error) { return l.usage(ctx) }

// Pin makes the configuration files of starting workers leave the limiter alone.
//
// Deprecated: use operate.Fleet.Pin.
func (l *Limiter) Pin(ctx context.Context) error {
	return l.must(l.line.Change(ctx, script.Pin, 1))
}

// Unpin undoes Pin.
//
// Deprecated: use operate.Fleet.Unpin.
func (l *Limiter) Unpin(ctx context.Context) error {
	return l.must(l.line.Change(ctx, script.Pin, 0))
}
