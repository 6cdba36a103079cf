package worker

import (
	"crypto/tls"

	"github.com/redis/go-redis/v9"
)

// NewClient returns a client of the configured Redis. It makes no connection
// yet; the caller closes it.
func (r RedisConfig) NewClient() (redis.UniversalClient, error) {
	if len(r.Addrs) == 0 {
		return nil, &ConfigError{Key: "redis.addrs", Msg: "no address: want at least one, such as 127.0.0.1:6379"}
	}
	opts := &redis.UniversalOptions{
		Addrs:      r.Addrs,
		MasterName: r.SentinelMaster,
		Username:   r.Username,
		Password:   r.Password,
		DB:         r.DB,
		PoolSize:   r.PoolSize,
	}
	if r.TLS {
		opts.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return redis.NewUniversalClient(opts), nil
}
