package redistest

import (
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/testcert"
)

// TLS is a redis-server that only accepts TLS, and asks its clients for a certificate as Redis
// does by default.
type TLS struct {
	Addr      string
	Authority string // file: the certificate that signed all others
	Cert, Key string // files: a client's certificate
}

// StartTLS runs a TLS server for the length of the test. Its certificate is for name, a host
// name or an address. args are redis-server's.
func StartTLS(tb testing.TB, name string, args ...string) TLS {
	tb.Helper()
	a := testcert.New(tb)
	serverCert, serverKey := a.Issue("server", name)
	s := launch(tb, func(port string) []string {
		return append(inMemory("0"), append([]string{
			"--tls-port", port, "--tls-cert-file", serverCert, "--tls-key-file", serverKey, "--tls-ca-cert-file", a.File,
		}, args...)...)
	})
	t := TLS{Addr: s.Addr, Authority: a.File}
	t.Cert, t.Key = a.Issue("client", "client")
	return t
}
