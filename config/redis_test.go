package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/testcert"
)

func TestRedisErrors(t *testing.T) {
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
			_, err := Parse("config.yaml", []byte(tt.text))
			if _, ok := errors.AsType[*Error](err); !ok || err.Error() != "config.yaml:"+tt.want {
				t.Errorf("\ngot  %v\nwant config.yaml:%s", err, tt.want)
			}
		})
	}
}

// TestClientCertificateIsReplaced: a connection shows the certificate that its files have by then, and the one before while
// they do not go together.
func TestClientCertificateIsReplaced(t *testing.T) {
	ca := testcert.New(t)
	cert, key := ca.Issue("client", "worker")
	nextCert, nextKey := ca.Issue("next", "worker")
	c, err := Redis{TLS: true, TLSCert: cert, TLSKey: key}.tlsConfig()
	if err != nil {
		t.Fatal(err)
	}
	shown := func() []byte {
		t.Helper()
		pair, err := c.GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Certificate[0]
	}
	replace := func(file, with string) {
		t.Helper()
		text, err := os.ReadFile(with)
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	first := shown()
	if replace(cert, nextCert); !bytes.Equal(shown(), first) {
		t.Error("a certificate is shown whose key is not there yet")
	}
	if replace(key, nextKey); bytes.Equal(shown(), first) {
		t.Error("the certificate is still that of the beginning")
	}
}
