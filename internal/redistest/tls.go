package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TLS is a redis-server that speaks nothing but TLS, and asks its clients for a certificate as Redis does by default.
type TLS struct {
	Addr      string
	Authority string // file: the certificate that signed all others
	Cert, Key string // files: a client's certificate
}

// StartTLS runs one for the length of the test. Its certificate is for name, a host name or an address. args are
// redis-server's.
func StartTLS(tb testing.TB, name string, args ...string) TLS {
	tb.Helper()
	a := newAuthority(tb)
	serverCert, serverKey := a.issue("server", name)
	s := launch(tb, func(port string) []string {
		return append(inMemory("0"), append([]string{
			"--tls-port", port, "--tls-cert-file", serverCert, "--tls-key-file", serverKey, "--tls-ca-cert-file", a.file,
		}, args...)...)
	})
	t := TLS{Addr: s.Addr, Authority: a.file}
	t.Cert, t.Key = a.issue("client", "client")
	return t
}

// authority signs the certificates of one server and its clients.
type authority struct {
	tb   testing.TB
	dir  string
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	a := &authority{tb: tb, dir: tb.TempDir(), key: newKey(tb)}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	a.file = a.write("authority.pem", "CERTIFICATE", der)
	return a
}

// issue returns the files of a certificate for a host name or an address, and of its key.
func (a *authority) issue(file, name string) (certFile, keyFile string) {
	a.tb.Helper()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		cert.IPAddresses = []net.IP{ip}
	} else {
		cert.DNSNames = []string{name}
	}
	key := newKey(a.tb)
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.tb.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.tb.Fatal(err)
	}
	return a.write(file+".pem", "CERTIFICATE", der), a.write(file+".key", "PRIVATE KEY", keyDER)
}

func (a *authority) write(name, kind string, der []byte) string {
	a.tb.Helper()
	file := filepath.Join(a.dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.tb.Fatal(err)
	}
	return file
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}
