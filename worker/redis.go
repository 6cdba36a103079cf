package worker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/replicas"
)

// replicasTimeout is how long replicas may take to acknowledge a grant:
// shorter than go-redis waits for a reply.
const replicasTimeout = time.Second

// reachTimeout bounds how long a start waits for a Redis that does not answer.
const reachTimeout = 5 * time.Second

// NewClient returns a client of the configured Redis. It makes no connection
// yet; the caller closes it.
func (r RedisConfig) NewClient() (redis.UniversalClient, error) {
	if len(r.Addrs) == 0 {
		return nil, &ConfigError{Key: "redis.addrs", Msg: "no address: want at least one, such as 127.0.0.1:6379"}
	}
	tlsConfig, err := r.tlsConfig()
	if err != nil {
		return nil, err
	}
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs:            r.Addrs,
		MasterName:       r.SentinelMaster,
		SentinelUsername: r.SentinelUsername,
		SentinelPassword: r.SentinelPassword,
		Username:         r.Username,
		Password:         r.Password,
		DB:               r.DB,
		PoolSize:         r.PoolSize,
		TLSConfig:        tlsConfig,

		ContextTimeoutEnabled: true, // so that a job's goroutine can make its limiter's call itself
	}), nil
}

// tlsConfig returns nil without redis.tls.
func (r RedisConfig) tlsConfig() (*tls.Config, error) {
	if !r.TLS {
		for _, s := range []struct{ key, value string }{
			{"tls_ca", r.TLSCA}, {"tls_cert", r.TLSCert}, {"tls_key", r.TLSKey}, {"tls_server_name", r.TLSServerName},
		} {
			if s.value != "" {
				return nil, invalid("redis."+s.key, "means nothing without tls: true")
			}
		}
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: r.TLSServerName}
	if r.TLSCA != "" {
		pem, err := os.ReadFile(r.TLSCA)
		if err != nil {
			return nil, invalid("redis.tls_ca", "%v", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalid("redis.tls_ca", "%s has no certificate: want some in PEM", r.TLSCA)
		}
	}
	switch {
	case r.TLSCert == "" && r.TLSKey == "":
		return c, nil
	case r.TLSKey == "":
		return nil, invalid("redis.tls_key", "missing: tls_cert needs it")
	case r.TLSCert == "":
		return nil, invalid("redis.tls_cert", "missing: tls_key needs it")
	}
	pair, err := tls.LoadX509KeyPair(r.TLSCert, r.TLSKey)
	if err != nil {
		return nil, invalid("redis.tls_cert", "%v", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// newThrottle returns a worker's view of the limiters in rdb.
func (r RedisConfig) newThrottle(rdb redis.UniversalClient) (*throttle.Client, error) {
	if r.WaitReplicas == 0 {
		return throttle.New(rdb, throttle.Options{})
	}
	_, cluster := rdb.(*redis.ClusterClient)
	return throttle.New(replicas.WaitReplicas(rdb, r.WaitReplicas, replicasTimeout), throttle.Options{Cluster: cluster})
}

// reach finds out whether Redis is there and lets the worker do its work.
func (c *Config) reach(ctx context.Context, rdb redis.UniversalClient) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	err := rdb.Ping(ctx).Err()
	if err == nil || redis.HasErrorPrefix(err, "NOPERM") {
		err = c.checkRights(ctx, rdb)
	}
	if err == nil {
		return nil
	}
	where := strings.Join(c.Redis.Addrs, ", ")
	if _, ok := errors.AsType[*RightsError](err); ok {
		return fmt.Errorf("cannot use Redis at %s: %w", where, err)
	}
	return fmt.Errorf("cannot reach Redis at %s: %w; %s", where, err, c.Redis.advice(err))
}

// advice says what to do about a Redis that does not answer as it should.
func (r RedisConfig) advice(err error) string {
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
