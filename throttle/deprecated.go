package throttle

import (
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
	"github.com/jobthrottle/jobthrottle/throttle/replicas"
)

// Acquirer is what Transport needs of a limit.
//
// Deprecated: use httplimit.Acquirer.
type Acquirer = httplimit.Acquirer

// Transport is httplimit.Transport.
//
// Deprecated: use httplimit.Transport.
func Transport(base http.RoundTripper, a Acquirer) http.RoundTripper {
	return httplimit.Transport(base, a)
}

// RetryAfter is httplimit.RetryAfter.
//
// Deprecated: use httplimit.RetryAfter.
func RetryAfter(resp *http.Response) (time.Duration, bool) { return httplimit.RetryAfter(resp) }

// ReplicasError says that too few replicas acknowledged a script in time.
//
// Deprecated: use replicas.ReplicasError.
type ReplicasError = replicas.ReplicasError

// WaitReplicas is replicas.WaitReplicas.
//
// Deprecated: use replicas.WaitReplicas.
func WaitReplicas(rdb redis.UniversalClient, n int, timeout time.Duration) redis.Scripter {
	return replicas.WaitReplicas(rdb, n, timeout)
}
