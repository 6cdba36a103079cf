package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

const secret = "hunter2-s3cret"

// TestAddressesKeepSecrets: whatever a user writes instead of an address, and wherever, the
// error does not repeat the password in it.
func TestAddressesKeepSecrets(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, addr := range []string{
		"redis://:SECRET@", "redis://u:SECRET@host:port/x", "redis://u:SECRET@127.0.0.1:1/0", "redis://u:a@SECRET@host:1", "redis://u:a/SECRET@host:1",
		"redis://:SECRET", "redis://host:1?password=SECRET", "redis://u:SECRET@host:1?nonsense=SECRET", "http://u:SECRET@host:1?addr=x:2",
		"redis://u:SECRET@host:1?addr=SECRET@x:2", "u:SECRET@host:1", "SECRET@host:1", ":SECRET@host:1", "host:1,u:SECRET@host:2", "host:1?password=SECRET",
		"redis://u:%zzSECRET@host:1", "redis://u:SECRET@127.0.0.1:1", "redis://:SECRET@127.0.0.1:1,127.0.0.1:2", "redis:/u:SECRET@host:1", "redis:u:SECRET@host:1",
		"redis://u:SEC RET@host:1", "redis://u:\"SECRET@host:1", "redis://u:SECRET\n@host:1",
	} {
		addr = strings.ReplaceAll(addr, "SECRET", secret)
		ways := [][]string{{"--redis", addr}, {"--redis=" + addr}}
		if strings.Contains(addr, "://") { // else it is no address elsewhere
			ways = append(ways, []string{"--reids", addr}, []string{addr}, []string{"x", addr}, []string{"--config", addr}, []string{"--redis", "127.0.0.1:1", addr})
		}
		for _, args := range ways {
			var path, at string
			cmd := &cobra.Command{Use: "test", Args: NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
				r, err := OpenRedis(path, at)
				if err != nil {
					return err
				}
				defer r.Client.Close()
				if strings.Contains(at, "127.0.0.1:1/") {
					return r.Ping(cmd.Context())
				}
				return errors.New("opened " + r.Addrs)
			}}
			cmd.Flags().StringVar(&path, "config", "", "")
			cmd.Flags().StringVar(&at, "redis", "", "")
			var stdout, stderr bytes.Buffer
			if status := Run(t.Context(), cmd, args, strings.NewReader(""), &stdout, &stderr); status == Done {
				t.Errorf("%q: done", args)
			}
			if out := stdout.String() + stderr.String(); strings.Contains(out, secret) || strings.Contains(out, "s3cret") || out == "" {
				t.Errorf("%q: %s", args, out)
			}
		}
	}
}

// TestHideSecrets: what is no password stays.
func TestHideSecrets(t *testing.T) {
	for in, want := range map[string]string{
		"cannot use Redis at 127.0.0.1:6379: EOF":         "cannot use Redis at 127.0.0.1:6379: EOF",
		`no limiter "team@corp" in Redis`:                 `no limiter "team@corp" in Redis`,
		`unexpected argument "redis://u:pw@host:1/0"`:     `unexpected argument "redis://...@host:1/0"`,
		`unexpected argument "redis://u:p@w@host:1/0" x`:  `unexpected argument "redis://...@host:1/0" x`,
		"want redis://user@host:port/db, or":              "want redis://...@host:port/db, or",
		"see https://api.example.com/v1?x=1 and http://a": "see https://api.example.com/v1?x=1 and http://a",
	} {
		if got := hideSecrets(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// ping opens Redis as a command does, and asks it.
func ping(t *testing.T, path, addr string) error {
	t.Helper()
	r, err := OpenRedis(path, addr)
	if err != nil {
		return err
	}
	defer r.Client.Close()
	return r.Ping(t.Context())
}

// file writes a configuration and returns its path.
func file(t *testing.T, text string) string {
	t.Helper()
	path := t.TempDir() + "/jobs.yaml"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAdvice: what is wrong says what to do about it, and nothing else.
func TestAdvice(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("REDIS_PASSWORD", "")
	guarded := redistest.Start(t, "--requirepass", "another")
	admin := redis.NewClient(&redis.Options{Addr: guarded, Password: "another"})
	defer admin.Close()
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "worker", "on", ">pw", "~*", "+get").Err(); err != nil {
		t.Fatal(err)
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := nobody.Addr().String()
	nobody.Close()
	overTLS := redistest.StartTLS(t, "127.0.0.1", "--tls-auth-clients", "no").Addr
	loading := loadingRedis(t)
	const password, start, rights = "REDIS_PASSWORD", "start redis-server", "docs/redis.md"
	for _, tt := range []struct{ name, config, addr, code, want string }{
		{"no password", "", guarded, "NOAUTH", password},
		{"no password in a URL", "", "redis://" + guarded, "NOAUTH", password},
		{"no password in the file", fmt.Sprintf("redis: { addrs: [%q] }", guarded), "", "NOAUTH", "redis.username and redis.password"},
		{"an unset password in the file", fmt.Sprintf("redis: { addrs: [%q], password: \"${NOT_SET}\" }", guarded), "", "NOAUTH", "redis.password in the configuration (${NOT_SET} is not set in the environment)"},
		{"wrong password in a URL", "", "redis://:" + secret + "@" + guarded, "WRONGPASS", password},
		{"wrong password in the file", fmt.Sprintf("redis: { addrs: [%q], password: %s }", guarded, secret), "", "WRONGPASS", "redis.username and redis.password"},
		{"wrong user", "", "redis://nobody:" + secret + "@" + guarded, "WRONGPASS", password},
		{"no right", "", "redis://worker:pw@" + guarded, "NOPERM", rights},
		{"no right in the file", fmt.Sprintf("redis: { addrs: [%q], username: worker, password: pw }", guarded), "", "NOPERM", rights},
		{"nobody there", "", refused, "refused", start},
		{"an unset host in the file", fmt.Sprintf("redis: { addrs: [\"${NOT_SET}%s\"] }", refused[len("127.0.0.1"):]), "", "refused", start + ", or give the address of another (worker --embedded prints its own) to --redis or redis.addrs of the configuration (${NOT_SET} is not set in the environment)"},
		{"nobody there in a URL", "", "redis://" + refused, "refused", start},
		{"TLS on a port without", fmt.Sprintf("redis: { addrs: [%q], tls: true }", guarded), "", "TLS", "does not speak TLS"},
		{"TLS on a port without, in a URL", "", "rediss://" + guarded, "TLS", "does not speak TLS"},
		{"no TLS on a port with it", fmt.Sprintf("redis: { addrs: [%q] }", overTLS), "", "127.0.0.1", "set redis.tls"},
		{"no TLS on a port with it, in a URL", "", "redis://" + overTLS, "127.0.0.1", "rediss://"},
		{"an unknown authority", "", "rediss://" + overTLS, "certificate", "redis.tls_ca"},
		{"it loads its data", "", loading, "LOADING", "try again"},
	} {
		path := ""
		if tt.config != "" {
			path = file(t, tt.config)
		}
		err := ping(t, path, tt.addr)
		if err == nil || !strings.Contains(err.Error(), tt.code) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %s and %s", tt.name, err, tt.code, tt.want)
			continue
		}
		if shown := hideSecrets(err.Error()); tt.addr != "" && !strings.Contains(tt.addr, "@") && shown != err.Error() {
			t.Errorf("%s: shown as %s", tt.name, shown)
		}
		for _, other := range []string{password, start, rights} {
			if !strings.HasPrefix(tt.want, other) && strings.Contains(err.Error(), other) && !(tt.config != "" && other == password) {
				t.Errorf("%s: %v, want no word of %s", tt.name, err, other)
			}
		}
	}
}

// loadingRedis returns the address of a server that answers as a Redis does that reads its data.
func loadingRedis(t *testing.T) string {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for requests := bufio.NewScanner(conn); requests.Scan(); {
					if strings.HasPrefix(requests.Text(), "*") {
						io.WriteString(conn, "-LOADING Redis is loading the dataset in memory\r\n")
					}
				}
			}()
		}
	}()
	return server.Addr().String()
}

// TestAdviceLater: a node of a Cluster answers the first question, and refuses a later one. Nobody is told of a flag that the
// command has not.
func TestAdviceLater(t *testing.T) {
	moved := errors.New("operate: MOVED 1234 10.0.0.3:6379")
	for _, flag := range []bool{false, true} {
		cmd := &cobra.Command{Use: "test", RunE: func(*cobra.Command, []string) error { return moved }}
		if flag {
			cmd.Flags().String("redis", "", "")
		}
		var stderr strings.Builder
		if status := Run(t.Context(), cmd, nil, nil, io.Discard, &stderr); status != Failed || strings.Contains(stderr.String(), "name several in --redis") != flag {
			t.Errorf("with --redis %v: status %d, %s", flag, status, &stderr)
		}
	}
}

// TestPasswordOfTheEnvironment: an address without a password, in whatever form,
// has the one of the environment. A password that is given comes first.
func TestPasswordOfTheEnvironment(t *testing.T) {
	t.Chdir(t.TempDir())
	guarded := redistest.Start(t, "--requirepass", "another")
	open := redistest.Start(t)
	t.Setenv("REDIS_PASSWORD", "another")
	for _, addr := range []string{guarded, "redis://" + guarded, "redis://" + guarded + "/0", "redis://default@" + guarded, open, "redis://" + open} {
		if err := ping(t, "", addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if err := ping(t, file(t, "log: { level: info }"), guarded); err != nil {
		t.Errorf("with a file that has no password: %v", err)
	}
	t.Setenv("REDIS_PASSWORD", secret)
	for path, addr := range map[string]string{
		"":                                      "redis://:another@" + guarded,
		file(t, "redis: { password: another }"): guarded,
		file(t, fmt.Sprintf("redis: { addrs: [%q], password: another }", guarded)): "",
	} {
		if err := ping(t, path, addr); err != nil {
			t.Errorf("%q with a password of its own: %v", addr, err)
		}
	}
	// A file that names the server also has its password.
	if err := ping(t, file(t, fmt.Sprintf("redis: { addrs: [%q] }", open)), ""); err != nil {
		t.Error(err)
	}
}

// TestBrokenConfigOfTheDirectory: a user who names the Redis needs no config.yaml. If a broken
// one is in the directory, a line says so, for either form of the address. A file that is asked
// for has to be right.
func TestBrokenConfigOfTheDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("REDIS_PASSWORD", "")
	addr := redistest.Start(t)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(DefaultConfig, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	told := func(path, addr string) (string, *Redis) {
		t.Helper()
		r, err := OpenRedis(path, addr)
		if err != nil {
			t.Errorf("%q %q: %v", path, addr, err)
			return "", nil
		}
		defer r.Client.Close()
		if err := r.Ping(t.Context()); err != nil {
			t.Errorf("%q %q: %v", path, addr, err)
		}
		var out bytes.Buffer
		r.Tell(&out)
		return out.String(), &r
	}
	forms := []string{addr, "redis://" + addr, "redis://" + addr + "/0"}
	for text, where := range map[string]string{
		"redis: { password: " + secret + ", db: x }":                        "config.yaml:1:40: redis.db: ",
		"limits: { \"a\\nb\": { rate: 1/1s } }":                             "config.yaml:1:11: limits.a",
		"redis: { addrs: [\"redis://:" + secret + "@h:1\"] }":               "config.yaml:1:18: redis.addrs[0]: ",
		"admin: { token: \"redis://u:" + secret + "@h:1\" }\nlog: { x: 1 }": "config.yaml:2:8: log.x: ",
	} {
		write(text)
		for _, form := range forms {
			out, r := told("", form)
			if !strings.HasPrefix(out, "warning: ") || !strings.Contains(out, where) || strings.Count(out, "\n") != 1 || strings.Contains(out, secret) {
				t.Errorf("%s with %s: told %q, want one line that names %s", form, text, out, where)
			}
			if r != nil && r.Config != nil {
				t.Errorf("%s with %s: a configuration that is broken", form, text)
			}
			if _, err := OpenRedis(DefaultConfig, form); err == nil || !strings.Contains(err.Error(), where) {
				t.Errorf("%s with %s by its name: %v", form, text, err)
			}
		}
		if _, err := OpenRedis("", ""); err == nil || !strings.Contains(err.Error(), where) {
			t.Errorf("no address, with %s: %v", text, err)
		}
	}
	write("limits: { api: { rate: 1/1s } }\njobs: { x: { limits: [api] } }\n")
	for _, form := range forms {
		if out, r := told("", form); r == nil || r.Config == nil || r.Config.Limits["api"].Rate == "" || out != "using config.yaml of this directory\n" {
			t.Errorf("%s with a good file: told %q", form, out)
		}
		if out, r := told(DefaultConfig, form); r == nil || r.Config == nil || out != "" {
			t.Errorf("%s with a good file by its name: told %q", form, out)
		}
	}
	if err := os.Remove(DefaultConfig); err != nil {
		t.Fatal(err)
	}
	for _, form := range forms {
		if out, r := told("", form); r == nil || r.Config != nil || out != "" {
			t.Errorf("%s without a file: told %q", form, out)
		}
		if _, err := OpenRedis(DefaultConfig, form); err == nil {
			t.Errorf("%s: a file that is not there is accepted", form)
		}
	}
}
