package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const secret = "hunter2-s3cret"

// TestAddressesKeepSecrets: whatever a user writes in place of an address, and
// wherever, the error does not repeat the password in it.
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
