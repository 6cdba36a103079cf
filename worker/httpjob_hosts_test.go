package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/hosts"
)

func mustHosts(t *testing.T, rules ...string) hostList {
	t.Helper()
	l, err := hosts.Parse(rules)
	if err != nil {
		t.Fatal(err)
	}
	return hostList{l}
}

func TestHostListCheck(t *testing.T) {
	list := []string{"api.example.com", "ported.example.com:8443", "*.wild.example.com", "*.half.example.com:443", "10.0.0.5", "[::1]:8080", "localhost"}
	for _, tc := range []struct {
		url string
		ok  bool
	}{
		{"https://api.example.com/v1", true},
		{"http://API.Example.COM:8080", true},
		{"https://api.example.com.", true},
		{"https://api.example.com..", false},
		{"https://example.com", false},
		{"https://x.api.example.com", false},
		{"https://api.example.com.evil.org", false},
		{"https://evilapi.example.com", false},
		{"https://ported.example.com:8443", true},
		{"https://ported.example.com", false},
		{"https://a.wild.example.com", true},
		{"https://a.b.wild.example.com", true},
		{"https://wild.example.com", false},
		{"https://evilwild.example.com", false},
		{"https://a.half.example.com", true},
		{"http://a.half.example.com", false},
		{"http://10.0.0.5:9000", true},
		{"http://[::ffff:10.0.0.5]/", true}, // the same address
		{"http://10.0.0.6", false},
		{"http://[::1]:8080", true},
		{"http://[0:0:0:0:0:0:0:1]:8080", true},
		{"http://[::1]:8081", false},
		{"http://localhost:1", true},
		{"ftp://api.example.com", false},
		{"file:///etc/passwd", false},
		{"//api.example.com", false},
		// Other ways to write addresses.
		{"http://2130706433/", false},
		{"http://0x7f000001/", false},
		{"http://0177.0.0.1/", false},
		{"http://127.1/", false},
		{"http://127.0.0.1/", false},
		{"http://0/", false},
		{"http://[::]/", false},
		{"http://[::ffff:127.0.0.1]/", false},
		{"http://[::ffff:7f00:1]/", false},
		{"http://[::ffff:169.254.169.254]/", false},
		{"http://[64:ff9b::7f00:1]/", false},
		{"http://[fe80::1%25eth0]/", false},
		{"http://0x7f.0.0.1/", false},
		{"http://017700000001/", false},
		{"http://127.0.0.1.api.example.com/", false},
		{"http://[0:0:0:0:0:ffff:7f00:0001]/", false},
		{"http://[::127.0.0.1]/", false},
		{"http://127。0。0。1/", false},
		{"http://１２７.0.0.1/", false},
		{"http://%31%32%37.0.0.1/", false},
		{"http://ⓐpi.example.com/", false},
		{"http://ap\u0130.example.com/", false},
		{"http://ap%C4%B0.example.com/", false},
		{"http://api.examp\u017fe.com/", false},
		{"http://\u212a.wild.example.com/", false},
		{"http://%E2%84%AA.wild.example.com/", false},
		{"http://a\u00adpi.example.com/", false},
		{"http://api\u3002example.com/", false},
		{"http://api.example.com\u3002/", false},
		{"http://\uff41pi.example.com/", false},
		{"http://[::ffff:10.0.0.5%25lo]/", false},
		{"http://[::1%25]:8080/", false},
		{"http://a.b;.wild.example.com/", false},
		{"http://a.0.wild.example.com./", true},
		{"http://api.example.com%00.evil.org/", false},
		// Whose host is which.
		{"http://api.example.com@127.0.0.1/", false},
		{"http://api.example.com:80@127.0.0.1/", false},
		{"http://api.example.com%2f@127.0.0.1/", false},
		{"http://api.example.com;@127.0.0.1/", false},
		{"http://api.example.com&@127.0.0.1/", false},
		{"http://api.example.com#@127.0.0.1/", true}, // a fragment: the request goes to the host before it
		{"http://user:secret@api.example.com/", false},
		{"http://@api.example.com/", false},
		{"http://127.0.0.1#@api.example.com/", false},
		{"http://127.0.0.1?@api.example.com/", false},
		{`http://127.0.0.1\@api.example.com/`, false},
		{"http:api.example.com", false},
		{"http:///api.example.com", false},
	} {
		t.Run(tc.url, func(t *testing.T) {
			u, err := url.Parse(tc.url)
			if err == nil {
				err = mustHosts(t, list...).check(u)
			}
			if (err == nil) != tc.ok {
				t.Errorf("check: %v, want allowed = %t", err, tc.ok)
			}
		})
	}
}

func TestIsPublic(t *testing.T) {
	for addr, want := range map[string]bool{
		"1.1.1.1": true, "8.8.8.8": true, "172.15.255.255": true, "172.32.0.0": true, "100.63.255.255": true, "100.128.0.0": true,
		"0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "100.64.0.1": false, "100.127.255.255": false, "127.0.0.1": false,
		"127.255.255.254": false, "169.254.169.254": false, "172.16.0.1": false, "172.31.255.255": false, "192.0.0.8": false,
		"192.0.2.1": false, "192.168.1.1": false, "198.18.0.1": false, "198.19.255.255": false, "198.51.100.1": false,
		"203.0.113.1": false, "224.0.0.1": false, "239.255.255.250": false, "240.0.0.1": false, "255.255.255.255": false,
		"2606:4700::1111": true, "2a00:1450::1": true,
		"::": false, "::1": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fd00:ec2::254": false, "fec0::1": false,
		"ff02::1": false, "2001:db8::1": false, "2001::1": false, "2002:7f00:1::": false, "3fff::1": false, "5f00::1": false, "100::1": false,
		"::ffff:8.8.8.8": true, "::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::127.0.0.1": false,
		"64:ff9b::808:808": true, "64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::808:808": false,
	} {
		if got := isPublic(netip.MustParseAddr(addr)); got != want {
			t.Errorf("isPublic(%s) = %t, want %t", addr, got, want)
		}
	}
}

func TestHostListCheckAddr(t *testing.T) {
	for _, tc := range []struct {
		name, list, host, port, addr string
		ok                           bool
	}{
		{"public", "api.example.com", "api.example.com", "443", "1.1.1.1", true},
		{"rebound", "api.example.com", "api.example.com", "443", "127.0.0.1", false},
		{"rebound to metadata", "api.example.com", "api.example.com", "80", "169.254.169.254", false},
		{"rebound to a mapped address", "api.example.com", "api.example.com", "80", "::ffff:10.0.0.1", false},
		{"address listed too", "api.example.com 10.0.0.1", "api.example.com", "80", "10.0.0.1", true},
		{"address listed too, mapped", "api.example.com 10.0.0.1", "api.example.com", "80", "::ffff:10.0.0.1", true},
		{"address listed with another port", "api.example.com 10.0.0.1:81", "api.example.com", "80", "10.0.0.1", false},
		{"address itself", "10.0.0.1", "10.0.0.1", "80", "10.0.0.1", true},
		{"address itself, other port", "10.0.0.1:81", "10.0.0.1", "80", "10.0.0.1", false},
		{"localhost", "localhost", "localhost", "80", "127.0.0.1", true},
		{"localhost, IPv6", "localhost", "localhost", "80", "::1", true},
		{"localhost, listed port", "localhost:80", "localhost", "80", "127.0.0.1", true},
		{"service name", "api:8080", "api", "8080", "172.18.0.2", true},
		{"internal name", "api.corp.internal", "api.corp.internal", "80", "10.1.2.3", true},
		{"internal name by wildcard", "*.internal", "metadata.google.internal", "80", "169.254.169.254", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := mustHosts(t, strings.Fields(tc.list)...).checkAddr(tc.host, tc.port, netip.MustParseAddr(tc.addr))
			if (err == nil) != tc.ok {
				t.Errorf("checkAddr: %v, want allowed = %t", err, tc.ok)
			}
		})
	}
}

// Whatever passes the first check gets no connection to what is not listed.
func TestDialerChecksTheNameAgain(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	addr := server.Listener.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	dialer := &guardedDialer{hosts: mustHosts(t, "mysite.io:"+port, "*.internal", "127.0.0.1:"+port, "localhost:1")}
	dialer.Resolver = liar(t, netip.MustParseAddr("127.0.0.1"))
	for host, ok := range map[string]bool{
		addr: true, "mysite.io:" + port: true, "MYSITE.io.:" + port: true, "a.internal:" + port: true, "[::ffff:127.0.0.1]:" + port: true,
		"mysite.io:443": false, "xn--myste-j4a.io:" + port: false, "mys\u0130te.io:" + port: false, "localhost:" + port: false, "internal:" + port: false,
		"127.0.0.2:" + port: false, "[::1]:" + port: false, "[::ffff:127.0.0.1%lo]:" + port: false, "127.1:" + port: false, ":" + port: false,
	} {
		conn, err := dialer.dial(t.Context(), "tcp", host)
		if err == nil {
			conn.Close()
		}
		if _, refused := errors.AsType[*HTTPHostError](err); refused == ok || (err == nil) != ok {
			t.Errorf("dial %q: error %v, want a connection: %t", host, err, ok)
		}
	}
}

// A name server that answers what an attacker wants, and a job that asks it.
func TestHTTPJobIsSafeFromRebinding(t *testing.T) {
	var arrived int
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived++
		w.WriteHeader(http.StatusTeapot)
	}))
	defer api.Close()
	_, port, err := net.SplitHostPort(api.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	loopback := netip.MustParseAddr("127.0.0.1")
	mapped := netip.MustParseAddr("::ffff:127.0.0.1")
	for _, tc := range []struct {
		name, list string
		addr       netip.Addr
		arrives    int
	}{
		{"name", "api.example.com", loopback, 0},
		{"name and port", "api.example.com:" + port, loopback, 0},
		{"wildcard", "*.example.com", loopback, 0},
		{"name and address", "api.example.com 127.0.0.1", loopback, 1},
		{"mapped", "api.example.com", mapped, 0},
		{"mapped, name and address", "api.example.com 127.0.0.1", mapped, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			arrived = 0
			cfg := config.Default()
			cfg.HTTP.AllowHosts = strings.Fields(tc.list)
			job := newTestHTTPJob(t, cfg)
			dialer := &guardedDialer{hosts: job.hosts}
			dialer.Resolver = liar(t, tc.addr)
			job.base.DialContext = dialer.dial
			err := job.ProcessTask(withoutLimits(t.Context()), asynq.NewTask(HTTPTaskType, []byte(`{"url":"http://api.example.com:`+port+`/"}`)))
			if arrived != tc.arrives {
				t.Errorf("%d requests arrived, want %d", arrived, tc.arrives)
			}
			host, refused := errors.AsType[*HTTPHostError](err)
			if refused != (tc.arrives == 0) || refused && (host.Addr.String() != "127.0.0.1" || !isBlocked(err, HostNotAllowed)) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A name that meant a public address when the first request was made, and means
// a private one at the next: what was found out is not kept.
func TestHTTPJobLooksNamesUpAgain(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("arrived at a private address") }))
	defer api.Close()
	_, port, err := net.SplitHostPort(api.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.HTTP.AllowHosts = []string{"api.example.com"}
	job := newTestHTTPJob(t, cfg)
	dialer := &guardedDialer{hosts: job.hosts}
	job.base.DialContext = dialer.dial
	for _, addr := range []string{"203.0.113.1", "127.0.0.1", "169.254.169.254"} { // none of which is public, nor reached
		dialer.Resolver = liar(t, netip.MustParseAddr(addr))
		err := job.ProcessTask(withoutLimits(t.Context()), asynq.NewTask(HTTPTaskType, []byte(`{"url":"http://api.example.com:`+port+`/"}`)))
		if host, ok := errors.AsType[*HTTPHostError](err); !ok || host.Addr.String() != addr {
			t.Errorf("the name means %s: error %v", addr, err)
		}
	}
}

// A proxy would connect to what the job must not.
func TestHTTPJobUsesNoProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("arrived at the proxy") }))
	defer proxy.Close()
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	if newTestHTTPJob(t, config.Default()).base.Proxy != nil {
		t.Error("requests go through the proxy of the environment")
	}
}

// liar returns a resolver to which every name has the address addr.
func liar(t *testing.T, addr netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(answerDNS(buf[:n], addr), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// answerDNS answers the one question of an RFC 1035 query: with addr, if it asks
// for an address of its kind.
func answerDNS(query []byte, addr netip.Addr) []byte {
	const header = 12
	kind := uint16(1) // A
	if addr.Is6() {
		kind = 28 // AAAA
	}
	end := header
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // the root label, type and class
	answer := append([]byte(nil), query[:end]...)
	answer[2], answer[3] = 0x81, 0x80                      // a response, recursion available, no error
	copy(answer[4:header], []byte{0, 1, 0, 0, 0, 0, 0, 0}) // one question
	if binary.BigEndian.Uint16(query[end-4:]) == kind {
		answer[7] = 1
		answer = append(answer, 0xc0, header, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(addr.AsSlice()))) // name as above, TTL 0
		answer = append(answer, addr.AsSlice()...)
	}
	return answer
}
