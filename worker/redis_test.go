package worker

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// secret is what no error may show.
const secret = "hunter2-s3cret"

// startWith runs a worker of the configuration until it has found out whether it can start.
func startWith(t *testing.T, cfg *Config) error {
	t.Helper()
	w, err := New(cfg, zap.NewNop())
	if err != nil {
		return err
	}
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}()
	return w.prepare(t.Context())
}

// checkTrouble fails the test unless the error mentions all of these, and not the secret.
func checkTrouble(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one about %q", want)
	}
	for _, want := range want {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not mention %q", err, want)
		}
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("%q shows the password", err)
	}
}

func TestTLS(t *testing.T) {
	byAddress := redistest.StartTLS(t, "127.0.0.1")
	byName := redistest.StartTLS(t, "redis.example.com")
	anyClient := redistest.StartTLS(t, "127.0.0.1", "--tls-auth-clients", "no")
	plain := redistest.Start(t)
	of := func(s redistest.TLS) RedisConfig {
		return RedisConfig{Addrs: []string{s.Addr}, TLS: true, TLSCA: s.Authority, TLSCert: s.Cert, TLSKey: s.Key}
	}
	tests := []struct {
		name   string
		redis  RedisConfig
		change func(*RedisConfig)
		want   []string // none: it starts
	}{
		{name: "by address", redis: of(byAddress)},
		{name: "by name", redis: of(byName), change: func(r *RedisConfig) { r.TLSServerName = "redis.example.com" }},
		{name: "any client", redis: of(anyClient), change: func(r *RedisConfig) { r.TLSCert, r.TLSKey = "", "" }},
		{name: "another name", redis: of(byName), want: []string{"127.0.0.1", "tls_server_name"}},
		{name: "authority of another", redis: of(byAddress), change: func(r *RedisConfig) { r.TLSCA = byName.Authority }, want: []string{byAddress.Addr, "authority", "tls_ca"}},
		{name: "the system's authorities", redis: of(byAddress), change: func(r *RedisConfig) { r.TLSCA = "" }, want: []string{byAddress.Addr, "authority", "tls_ca"}},
		{name: "no certificate", redis: of(byAddress), change: func(r *RedisConfig) { r.TLSCert, r.TLSKey = "", "" }, want: []string{"certificate", "tls_cert", "tls_key"}},
		{name: "a server without TLS", redis: of(byAddress), change: func(r *RedisConfig) { r.Addrs = []string{plain} }, want: []string{plain, "redis.tls"}},
		{name: "a client without TLS", redis: RedisConfig{Addrs: []string{byAddress.Addr}}, want: []string{byAddress.Addr}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Redis = tt.redis
			if tt.want != nil {
				cfg.Redis.Password = secret // the servers have none, and are not reached
			}
			if tt.change != nil {
				tt.change(&cfg.Redis)
			}
			err := startWith(t, cfg)
			if tt.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			checkTrouble(t, err, tt.want...)
		})
	}
}

func TestRedisConfigErrors(t *testing.T) {
	nonsense := filepath.Join(t.TempDir(), "nonsense.pem")
	if err := os.WriteFile(nonsense, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, text, want string }{
		{"authority without TLS", "redis: {tls_ca: x.pem}\n", `1:17: redis.tls_ca: means nothing without tls: true`},
		{"missing authority", "redis: {tls: true, tls_ca: /no/such}\n", `1:28: redis.tls_ca: open /no/such: no such file or directory`},
		{"nonsense for an authority", "redis: {tls: true, tls_ca: " + nonsense + "}\n", `1:28: redis.tls_ca: ` + nonsense + ` has no certificate: want some in PEM`},
		{"certificate without key", "redis: {tls: true, tls_cert: x.pem}\n", `1:1: redis.tls_key: missing: tls_cert needs it`},
		{"key without certificate", "redis: {tls: true, tls_key: x.pem}\n", `1:1: redis.tls_cert: missing: tls_key needs it`},
		{"nonsense for a certificate", "redis: {tls: true, tls_cert: " + nonsense + ", tls_key: " + nonsense + "}\n",
			`1:30: redis.tls_cert: tls: failed to find any PEM data in certificate input`},
		{"replicas", "redis: {wait_replicas: -1}\n", `1:24: redis.wait_replicas: invalid number -1: want 0 (do not wait) or more`},
		{"sentinels without a master", "redis: {sentinel_password: x}\n", `1:1: redis.sentinel_master: missing: a user or password of sentinels needs it`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseConfig("config.yaml", []byte(tt.text))
			if _, ok := errors.AsType[*ConfigError](err); !ok || err.Error() != "config.yaml:"+tt.want {
				t.Errorf("\ngot  %v\nwant config.yaml:%s", err, tt.want)
			}
		})
	}
}

func TestRedisTroubleAtStart(t *testing.T) {
	guarded := redistest.Start(t, "--requirepass", "another")
	plain := redistest.Start(t)
	node := redistest.StartCluster(t)[0]
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := silent.Addr().String()
	silent.Close()
	limited := func(c *Config) {
		c.Limits = map[string]LimitConfig{"a": {Rate: "1/1s"}, "b": {Rate: "1/1s"}, "c": {Rate: "1/1s"}}
		c.Jobs = map[string]JobConfig{"x": {Limits: []string{"a", "b", "c"}}}
	}
	for _, tt := range []struct {
		name   string
		redis  RedisConfig
		change func(*Config)
		want   []string
	}{
		{"wrong password", RedisConfig{Addrs: []string{guarded}, Password: secret}, nil, []string{"WRONGPASS", "redis.password"}},
		{"wrong user", RedisConfig{Addrs: []string{guarded}, Username: "nobody", Password: secret}, nil, []string{"WRONGPASS", "redis.username"}},
		{"no password", RedisConfig{Addrs: []string{guarded}}, nil, []string{"NOAUTH", "redis.password"}},
		{"nobody there", RedisConfig{Addrs: []string{refused}, Username: "u", Password: secret}, nil, []string{refused, "refused", "--embedded"}},
		{"no sentinels there", RedisConfig{Addrs: []string{refused}, SentinelMaster: "jobs", Password: secret, SentinelPassword: secret}, nil, []string{refused}},
		{"no cluster", RedisConfig{Addrs: []string{plain, plain}}, nil, []string{plain, "redis.addrs"}},
		{"one node of a cluster", RedisConfig{Addrs: []string{node}, Password: ""}, limited, []string{"MOVED", "redis.addrs"}},
		{"replicas that are missing", RedisConfig{Addrs: []string{plain}, WaitReplicas: 1}, limited, []string{"limit", "0 of 1 replicas", "redis.wait_replicas"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Redis = tt.redis
			if tt.change != nil {
				tt.change(cfg)
			}
			checkTrouble(t, startWith(t, cfg), tt.want...)
		})
	}
}

// rightsOf is a configuration with all that asks for rights, and a user who
// has exactly those but for what is left out.
func rightsOf(t *testing.T, admin *redis.Client, without string) *Config {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Redis = RedisConfig{Addrs: []string{admin.Options().Addr}, Username: "jobs", Password: secret}
	cfg.Limits = map[string]LimitConfig{"api": {Rate: "5/1s"}, "account": {Rate: "5/1s", Key: "payload.account"}, "{tag}:x": {Rate: "5/1s"}}
	cfg.Jobs = map[string]JobConfig{"x": {Limits: []string{"api", "account", "{tag}:x"}}}
	cfg.Admin.Addr = "127.0.0.1:0"
	rules := slices.DeleteFunc(cfg.rights(), func(rule string) bool { return rule == without })
	args := []any{"acl", "setuser", "jobs", "reset", "on", ">" + secret}
	for _, rule := range rules {
		args = append(args, rule)
	}
	if err := admin.Do(context.Background(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestRightsAtStart: exactly the rights are enough, and of fewer the error names each that is missing.
func TestRightsAtStart(t *testing.T) {
	admin := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	defer admin.Close()
	cfg := rightsOf(t, admin, "")
	if err := startWith(t, cfg); err != nil {
		t.Fatal(err)
	}
	for _, right := range cfg.rights() {
		err := startWith(t, rightsOf(t, admin, right))
		checkTrouble(t, err, "ACL SETUSER jobs", right)
		if rights, ok := errors.AsType[*RightsError](err); !ok || !slices.Contains(rights.Missing, right) || len(rights.Missing) > 1+len(channels) {
			t.Errorf("without %s: %v", right, err)
		}
	}
}
