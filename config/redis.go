package config

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/replicas"
)

// replicasTimeout is how long replicas may take to acknowledge a grant. It is shorter than
// go-redis waits for a reply.
const replicasTimeout = time.Second

// NewClient returns a client of the configured Redis. It makes no connection yet. The caller
// closes the client. If the configuration is wrong, the error is an [*Error].
func (r Redis) NewClient() (redis.UniversalClient, error) {
	if len(r.Addrs) == 0 {
		return nil, invalid("redis.addrs", "no address: want at least one, such as 127.0.0.1:6379")
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
func (r Redis) tlsConfig() (*tls.Config, error) {
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
	var latest atomic.Pointer[tls.Certificate]
	latest.Store(&pair)
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if pair, err := tls.LoadX509KeyPair(r.TLSCert, r.TLSKey); err == nil { // perhaps only one of them is new as yet
			latest.Store(&pair)
		}
		return latest.Load(), nil
	}
	return c, nil
}

// NewThrottle returns a client of the limiters in rdb. That may be a client from
// [Redis.NewClient] or another one. From the configuration it uses only the number of replicas
// that a grant waits for.
func (r Redis) NewThrottle(rdb redis.UniversalClient) (*throttle.Client, error) {
	if r.WaitReplicas == 0 {
		return throttle.New(rdb, throttle.Options{})
	}
	_, cluster := rdb.(*redis.ClusterClient)
	return throttle.New(replicas.WaitReplicas(rdb, r.WaitReplicas, replicasTimeout), throttle.Options{Cluster: cluster})
}
