package worker

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/hosts"
)

// FuzzHosts: whatever a URL says, a host that is let through is the one on the
// list, and no address that is not of the internet is connected to but the one
// on the list, or that of a local name on the list.
func FuzzHosts(f *testing.F) {
	for _, url := range []string{
		"https://api.example.com/v1", "http://API.example.com.:8443", "http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.1/",
		"http://[::ffff:127.0.0.1]/", "http://[::ffff:a9fe:a9fe]/", "http://[64:ff9b::7f00:1]/", "http://[fe80::1%25eth0]/",
		"http://api.example.com@127.0.0.1/", "http://api.example.com#@127.0.0.1/", `http://127.0.0.1\@api.example.com/`, "http://ⓐpi.example.com/",
		"http://ap\u0130.example.com/", "http://ap%C4%B0.example.com/", "http://\u212a.example.com/", "http://api\u3002example.com/", "http://api\uff0eexample.com/",
		"http://a\u00adpi.example.com/", "http://api.example.com\u3002/", "http://xn--ap-tqc.example.com/", "http://[::ffff:10.0.0.5%25lo]/", "http://api.example.com;x/",
	} {
		for _, rule := range []string{"api.example.com", "*.example.com:443", "10.0.0.5", "[::1]:8080", "localhost", "2130706433"} {
			f.Add(url, rule, []byte{127, 0, 0, 1})
		}
	}
	for _, addr := range []string{"10.1.2.3", "169.254.169.254", "100.64.0.1", "::1", "fe80::1", "fc00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "::10.0.0.1"} {
		f.Add("http://localhost", "localhost", netip.MustParseAddr(addr).AsSlice())
		f.Add("http://api.example.com", "api.example.com", netip.MustParseAddr(addr).AsSlice())
	}
	f.Fuzz(func(t *testing.T, url, rule string, address []byte) {
		cfg := config.Default()
		cfg.HTTP.AllowHosts = []string{rule}
		if err := cfg.Validate(); err != nil {
			if _, ok := errors.AsType[*config.Error](err); !ok {
				t.Errorf("error %T %v", err, err)
			}
			return
		}
		list, err := hosts.Parse(cfg.HTTP.AllowHosts)
		if err != nil {
			t.Fatalf("%q is valid, but %v", rule, err)
		}
		allowed := hostList{list}
		req, err := HTTPRequest{URL: url}.build(t.Context())
		if err != nil {
			return // FuzzHTTPRequestPayload
		}
		if err := allowed.check(req.URL); err != nil {
			if _, ok := errors.AsType[*HTTPHostError](err); !ok {
				t.Errorf("error %T %v", err, err)
			}
			return
		}
		host := req.URL.Hostname()
		if !isListed(host, rule) {
			t.Errorf("%q lets %q through", rule, url)
		}
		if dialled := whatIsDialled(t, req); !isListed(dialled, rule) || !sameHost(dialled, host) {
			t.Errorf("%q lets %q through, and %q is dialled", rule, url, dialled)
		}
		addr, ok := netip.AddrFromSlice(address)
		if !ok || allowed.checkAddr(host, portOf(req.URL), addr) != nil {
			return
		}
		listed, err := netip.ParseAddr(list[0].Host)
		same := err == nil && listed == addr.Unmap()
		local := !strings.HasPrefix(rule, "*") && isLocalName(list[0].Host)
		if !same && !local && ofPrivateNetwork(addr) {
			t.Errorf("%q lets %q connect to %s", rule, url, addr)
		}
	})
}

// whatIsDialled asks net/http which host it would connect to for a request.
func whatIsDialled(t *testing.T, req *http.Request) string {
	t.Helper()
	dialled := ""
	transport := &http.Transport{DialContext: func(_ context.Context, _, hostport string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(hostport)
		if err != nil {
			t.Errorf("dials %q: %v", hostport, err)
		}
		dialled = host
		return nil, errors.New("not dialled")
	}}
	if resp, err := transport.RoundTrip(req); err == nil {
		resp.Body.Close()
		t.Errorf("%s was answered", req.URL)
	}
	return dialled
}

// sameHost reports whether two hosts are the same, byte for byte, except for the case of ASCII
// letters and a final dot.
func sameHost(a, b string) bool {
	fold := func(s string) []byte {
		folded := []byte(strings.TrimSuffix(s, "."))
		for i, c := range folded {
			if c >= 0x80 {
				return nil
			}
			if 'A' <= c && c <= 'Z' {
				folded[i] = c + 'a' - 'A'
			}
		}
		return folded
	}
	return len(fold(a)) > 0 && bytes.Equal(fold(a), fold(b))
}

// isListed is what the documentation says of a list of one rule, whatever its port.
func isListed(host, rule string) bool {
	if i := strings.LastIndexByte(rule, ':'); i >= 0 && (strings.Count(rule, ":") == 1 || strings.HasPrefix(rule, "[") && rule[i-1] == ']') {
		rule = rule[:i]
	}
	if want, err := netip.ParseAddr(strings.Trim(rule, "[]")); err == nil {
		got, err := netip.ParseAddr(host)
		return err == nil && got.Unmap() == want.Unmap()
	}
	host, rule = strings.TrimSuffix(host, "."), strings.TrimSuffix(rule, ".")
	if below, ok := strings.CutPrefix(rule, "*"); ok {
		return len(host) > len(below) && sameHost(host[len(host)-len(below):], below)
	}
	return sameHost(host, rule)
}

// ofPrivateNetwork is what net/netip knows of addresses, and of those of IPv4 that hide in others.
func ofPrivateNetwork(addr netip.Addr) bool {
	addr = addr.Unmap()
	if addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified() {
		return true
	}
	if addr.Is4() {
		return false
	}
	b := addr.As16()
	for prefix, at := range map[string]int{"::/96": 12, "64:ff9b::/96": 12, "2002::/16": 2} {
		if netip.MustParsePrefix(prefix).Contains(addr) && ofPrivateNetwork(netip.AddrFrom4([4]byte(b[at:at+4]))) {
			return true
		}
	}
	return false
}
