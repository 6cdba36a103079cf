package refusal_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/refusal"
)

// TestAdvice: an error that tells what is wrong with the connection says what to do about it, and no other error does.
func TestAdvice(t *testing.T) {
	names := refusal.Names{Addrs: "the addresses", TLS: "the switch"}
	for _, tt := range []struct {
		err         error
		plain, over string // the advice without TLS and over it; empty: none
	}{
		{tls.RecordHeaderError{Msg: "no TLS handshake"}, "the addresses, or the switch", "the addresses, or the switch"},
		{context.DeadlineExceeded, "check the addresses", "does not speak TLS"},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, "check the addresses", "does not speak TLS"},
		{&net.DNSError{Err: "no such host", Name: "redis.exmaple", IsNotFound: true}, "correct the host name in the addresses", "correct the host name in the addresses"},
		{&net.DNSError{Err: "i/o timeout", Name: "redis.example", IsTimeout: true}, "correct the host name in the addresses", "correct the host name in the addresses"},
		{&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, "redis.tls_ca", "redis.tls_ca"},
		{errors.New("remote error: tls: certificate required"), "redis.tls_cert", "redis.tls_cert"},
		{io.EOF, "wants TLS on this port: set the switch", ""},
		{syscall.ECONNRESET, "wants TLS on this port: set the switch", ""},
		{syscall.EPIPE, "wants TLS on this port: set the switch", ""},
		{syscall.ECONNREFUSED, "", ""},
		{reply("MOVED 1234 10.0.0.3:6379"), "several in the addresses", "several in the addresses"},
		{errors.New("asynq: MOVED 1234 [fd00::3]:6379"), "several in the addresses", "several in the addresses"},
		{reply("MOVED 12182 :7503"), "several in the addresses", "several in the addresses"}, // of a node that does not know its name
		{errors.New(`no job "MOVED house"`), "", ""},
		{reply("ERR This instance has cluster support disabled"), "one in the addresses", "one in the addresses"},
		{reply("LOADING Redis is loading the dataset in memory"), "try again", "try again"},
		{reply("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), "try again", "try again"},
		{reply("CLUSTERDOWN The cluster is down"), "try again", "try again"},
		{reply("NOAUTH Authentication required."), "", ""},
	} {
		err := fmt.Errorf("call: %w", tt.err)
		for overTLS, want := range map[bool]string{false: tt.plain, true: tt.over} {
			if got := names.Advice(err, overTLS); !strings.Contains(got, want) || (got == "") != (want == "") {
				t.Errorf("%v, over TLS: %t: %q, want %q", err, overTLS, got, want)
			}
		}
	}
}
