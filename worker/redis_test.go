package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// secret is what no error may show.
const secret = "hunter2-s3cret"

// startWith runs a worker of the configuration until it has found out whether it can start.
func startWith(t *testing.T, cfg *config.Config) error {
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
	of := func(s redistest.TLS) config.Redis {
		return config.Redis{Addrs: []string{s.Addr}, TLS: true, TLSCA: s.Authority, TLSCert: s.Cert, TLSKey: s.Key}
	}
	tests := []struct {
		name   string
		redis  config.Redis
		change func(*config.Redis)
		want   []string // none: it starts
	}{
		{name: "by address", redis: of(byAddress)},
		{name: "by name", redis: of(byName), change: func(r *config.Redis) { r.TLSServerName = "redis.example.com" }},
		{name: "any client", redis: of(anyClient), change: func(r *config.Redis) { r.TLSCert, r.TLSKey = "", "" }},
		{name: "another name", redis: of(byName), want: []string{"127.0.0.1", "tls_server_name"}},
		{name: "authority of another", redis: of(byAddress), change: func(r *config.Redis) { r.TLSCA = byName.Authority }, want: []string{byAddress.Addr, "authority", "tls_ca"}},
		{name: "the system's authorities", redis: of(byAddress), change: func(r *config.Redis) { r.TLSCA = "" }, want: []string{byAddress.Addr, "authority", "tls_ca"}},
		{name: "no certificate", redis: of(byAddress), change: func(r *config.Redis) { r.TLSCert, r.TLSKey = "", "" }, want: []string{"certificate", "tls_cert", "tls_key"}},
		{name: "a server without TLS", redis: of(byAddress), change: func(r *config.Redis) { r.Addrs = []string{plain} }, want: []string{plain, "redis.tls"}},
		{name: "a client without TLS", redis: config.Redis{Addrs: []string{byAddress.Addr}}, want: []string{byAddress.Addr, "redis.tls"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config.Default()
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
	limited := func(c *config.Config) {
		c.Limits = map[string]config.Limit{"a": {Rate: "1/1s"}, "b": {Rate: "1/1s"}, "c": {Rate: "1/1s"}}
		c.Jobs = map[string]config.Job{"x": {Limits: []string{"a", "b", "c"}}}
	}
	for _, tt := range []struct {
		name   string
		redis  config.Redis
		change func(*config.Config)
		want   []string
	}{
		{"wrong password", config.Redis{Addrs: []string{guarded}, Password: secret}, nil, []string{"WRONGPASS", "redis.password"}},
		{"wrong user", config.Redis{Addrs: []string{guarded}, Username: "nobody", Password: secret}, nil, []string{"WRONGPASS", "redis.username"}},
		{"no password", config.Redis{Addrs: []string{guarded}}, nil, []string{"NOAUTH", "redis.password"}},
		{"nobody there", config.Redis{Addrs: []string{refused}, Username: "u", Password: secret}, nil, []string{refused, "refused", "--embedded"}},
		{"no sentinels there", config.Redis{Addrs: []string{refused}, SentinelMaster: "jobs", Password: secret, SentinelPassword: secret}, nil, []string{refused}},
		{"no cluster", config.Redis{Addrs: []string{plain, plain}}, nil, []string{plain, "redis.addrs"}},
		{"one node of a cluster", config.Redis{Addrs: []string{node}, Password: ""}, limited, []string{"MOVED", "redis.addrs"}},
		{"replicas that are missing", config.Redis{Addrs: []string{plain}, WaitReplicas: 1}, limited, []string{"limit", "0 of 1 replicas", "redis.wait_replicas"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config.Default()
			cfg.Redis = tt.redis
			if tt.change != nil {
				tt.change(cfg)
			}
			checkTrouble(t, startWith(t, cfg), tt.want...)
		})
	}
}

// TestUnsetPassword: a password in a variable that nobody has set is not wrong in the file. The error names the variable.
func TestUnsetPassword(t *testing.T) {
	cfg, err := config.Parse("config.yaml", fmt.Appendf(nil, "redis: { addrs: [%q], password: \"${NOT_SET}\" }", redistest.Start(t, "--requirepass", "another")))
	if err != nil {
		t.Fatal(err)
	}
	checkTrouble(t, startWith(t, cfg), "NOAUTH", "redis.password in the configuration (${NOT_SET} is not set in the environment)")
}

// TestFullRedisAtStart: a Redis that refuses the limits of a worker says why. It need not be started.
func TestFullRedisAtStart(t *testing.T) {
	cfg := config.Default()
	cfg.Redis = config.Redis{Addrs: []string{redistest.Start(t, "--maxmemory", "1")}}
	cfg.Limits = map[string]config.Limit{"api": {Rate: "1/1s"}}
	cfg.Jobs = map[string]config.Job{"x": {Limits: []string{"api"}}}
	err := startWith(t, cfg)
	checkTrouble(t, err, `"api"`, "OOM")
	if strings.Contains(err.Error(), "redis-server") || strings.Contains(err.Error(), "redis.addrs") {
		t.Errorf("%q gives the advice for a Redis that does not run", err)
	}
}

// rightsOf is a configuration with everything that needs rights, and a user who has exactly
// these rights, except the one that is left out.
func rightsOf(t *testing.T, admin *redis.Client, without string) *config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.Redis = config.Redis{Addrs: []string{admin.Options().Addr}, Username: "jobs", Password: secret}
	cfg.Limits = map[string]config.Limit{"api": {Rate: "5/1s"}, "account": {Rate: "5/1s", Key: "payload.account"}, "{tag}:x": {Rate: "5/1s"}}
	cfg.Jobs = map[string]config.Job{"x": {Limits: []string{"api", "account", "{tag}:x"}}}
	cfg.Admin.Addr = "127.0.0.1:0"
	rules := slices.DeleteFunc(rights(cfg), func(rule string) bool { return rule == without })
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
	for _, right := range rights(cfg) {
		if forPeople(right) {
			continue // TestRightsForPeople
		}
		err := startWith(t, rightsOf(t, admin, right))
		checkTrouble(t, err, "ACL SETUSER jobs", right)
		if rights, ok := errors.AsType[*RightsError](err); !ok || !slices.Contains(rights.Missing, right) || len(rights.Missing) > 1+len(channels) {
			t.Errorf("without %s: %v", right, err)
		}
	}
}

// TestRightsForPeople: in a rolling deployment the user still has the rights of the version before, which
// knew nothing of who is there and what was done. The worker warns, starts, and its jobs run.
func TestRightsForPeople(t *testing.T) {
	operator := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	defer operator.Close()
	cfg := rightsOf(t, operator, "")
	var without []any
	for _, right := range rights(cfg) {
		if !forPeople(right) {
			without = append(without, right)
		}
	}
	args := append([]any{"acl", "setuser", "jobs", "reset", "on", ">" + secret}, without...)
	if err := operator.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	core, logged := observer.New(zap.InfoLevel)
	w, err := New(cfg, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan struct{})
	w.HandleFunc("x", func(context.Context, *asynq.Task) error { close(ran); return nil })
	if _, err := asynq.NewClientFromRedisClient(operator).Enqueue(asynq.NewTask("x", []byte(`{"account":"acme"}`))); err != nil {
		t.Fatal(err)
	}
	stop := (&fleet{t: t}).run(w)
	select {
	case <-ran:
	case <-time.After(20 * time.Second):
		t.Fatalf("the job did not run: %v", logged.All())
	}
	stop()
	warned := logged.FilterMessageSnippet("its jobs run").All()
	if len(warned) != 1 || warned[0].Level != zap.WarnLevel {
		t.Fatalf("warned %v, want one warning", warned)
	}
	text := fmt.Sprint(warned[0].ContextMap())
	for _, right := range []string{"ACL SETUSER jobs", "~jobthrottle:worker:*", "~{jobthrottle:history}:*", "+zscan"} {
		if !strings.Contains(text, right) {
			t.Errorf("%s is not in the warning: %s", right, text)
		}
	}
	for _, e := range logged.FilterLevelExact(zap.ErrorLevel).All() {
		t.Errorf("an error: %v", e)
	}
}
