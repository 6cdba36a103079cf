package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/throttle/replicas"
)

// reachTimeout is how long a start waits at most for a Redis that does not answer.
const reachTimeout = 5 * time.Second

// reach finds out whether Redis answers and the user has the rights that the worker needs. It
// warns about missing rights that jobs do not need.
func reach(ctx context.Context, cfg *config.Config, rdb redis.UniversalClient, warn func(*RightsError)) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	err := rdb.Ping(ctx).Err()
	if err == nil || redis.HasErrorPrefix(err, "NOPERM") {
		err = checkRights(ctx, cfg, rdb, warn)
	}
	if err == nil {
		return nil
	}
	where := strings.Join(cfg.Redis.Addrs, ", ")
	if _, ok := errors.AsType[*RightsError](err); ok {
		return fmt.Errorf("cannot use Redis at %s: %w", where, err)
	}
	return fmt.Errorf("cannot reach Redis at %s: %w; %s", where, err, advice(cfg.Redis, err))
}

// advice says what to do if Redis does not answer as it should.
func advice(r config.Redis, err error) string {
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, few := errors.AsType[*replicas.ReplicasError](err)
	switch {
	case plain, r.TLS && errors.Is(err, context.DeadlineExceeded):
		return "perhaps it does not speak TLS on this port: correct redis.addrs, or redis.tls"
	case certificate:
		return "name its authority in redis.tls_ca and its name in redis.tls_server_name"
	case strings.Contains(err.Error(), "remote error: tls:"):
		return "it wants a certificate: set redis.tls_cert and redis.tls_key"
	case redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "NOAUTH"):
		return "correct redis.username and redis.password in the configuration"
	case redis.HasErrorPrefix(err, "NOPERM"):
		return "grant that to the user of redis.username: docs/redis.md lists what it needs"
	case redis.HasErrorPrefix(err, "MOVED"):
		return "it is a node of a Redis Cluster: name several in redis.addrs"
	case few:
		return "want as many replicas as redis.wait_replicas says"
	case strings.Contains(err.Error(), "cluster support disabled"):
		return "several redis.addrs are a Redis Cluster: give one, or sentinel_master"
	}
	return "start it (redis-server), correct redis.addrs in the configuration, or try the worker with --embedded"
}
