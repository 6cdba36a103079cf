package refusal

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// Names are how the users of a program name its settings of Redis.
type Names struct{ Addrs, TLS string }

// Advice says what to do about a connection that cannot be used; "" if err does not tell. The
// connection was over TLS or not.
func (n Names) Advice(err error, overTLS bool) string {
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	_, name := errors.AsType[*net.DNSError](err)
	timeout, network := errors.AsType[net.Error](err)
	late := network && timeout.Timeout()
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case name:
		return "correct the host name in " + n.Addrs + ", or the DNS of this machine"
	case late && !overTLS:
		return "check " + n.Addrs + ", the firewalls on the way, and how busy the server is"
	case plain, late:
		return "perhaps it does not speak TLS on this port: correct " + n.Addrs + ", or " + n.TLS
	case certificate:
		return "name its authority in redis.tls_ca and its name in redis.tls_server_name"
	case strings.Contains(err.Error(), "remote error: tls:"):
		return "it wants a certificate: set redis.tls_cert and redis.tls_key"
	case !overTLS && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)):
		return "perhaps it wants TLS on this port: set " + n.TLS + "; or no Redis is behind it, or it has too many clients"
	}
	return n.AdviceOnReply(err)
}

// moved is the reply of a node that does not have the key, also where asynq has passed on only its words.
var moved = regexp.MustCompile(`\bMOVED \d+ \S*:\d+`)

// AdviceOnReply says what to do if Redis refuses a call because of what kind of server it is, or
// of what it is doing; "" if that is not why.
func (n Names) AdviceOnReply(err error) string {
	switch text := err.Error(); {
	case moved.MatchString(text):
		return "it is a node of a Redis Cluster: name several in " + n.Addrs
	case strings.Contains(text, "cluster support disabled"):
		return "several addresses are a Redis Cluster: give one in " + n.Addrs + ", or redis.sentinel_master"
	}
	for _, code := range []string{"LOADING", "MASTERDOWN", "CLUSTERDOWN"} {
		if redis.HasErrorPrefix(err, code) {
			return "it is starting, or failing over: try again when it is ready"
		}
	}
	return ""
}
