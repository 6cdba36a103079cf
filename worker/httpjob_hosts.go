package worker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// hostList is http.allow_hosts: the hosts that jobs may call.
//
//	api.example.com        this host, any port
//	api.example.com:8443   this host, this port
//	*.example.com          every host below example.com, not itself; :port as above
//	10.0.0.5, [::1]:8080   this address
//
// Private addresses are another matter. Whoever runs a name server decides what
// a name means, so a name on the list does not open the private network: an
// address is connected to if it is public or on the list itself, or if the name
// is on the list (not by a *) and can only be a local one, such as localhost,
// a name without dots, or one below .internal.
type hostList []hostRule

type hostRule struct {
	host  string // normalHost
	port  string // empty means any
	below bool   // every host below host, instead of host
}

func parseHostList(hosts []string) (hostList, error) {
	l := make(hostList, 0, len(hosts))
	for i, s := range hosts {
		r, ok := parseHostRule(s)
		if !ok {
			return nil, invalid(fmt.Sprintf("http.allow_hosts[%d]", i),
				"invalid host %q: want HOST, HOST:PORT or *.DOMAIN in ASCII, such as api.example.com", s)
		}
		l = append(l, r)
	}
	return l, nil
}

func parseHostRule(s string) (r hostRule, ok bool) {
	host, below := strings.CutPrefix(s, "*.")
	r.below = below
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		r.host = normalHost(addr.String())
		return r, !below && addr.Zone() == ""
	}
	if h, port, err := net.SplitHostPort(host); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return r, false
		}
		host, r.port = h, strconv.FormatUint(n, 10)
	}
	r.host = normalHost(host)
	addr, err := netip.ParseAddr(r.host)
	if err == nil {
		return r, !below && addr.Zone() == ""
	}
	return r, isHostName(r.host)
}

// check returns a *HTTPHostError if jobs may not call the URL.
func (l hostList) check(u *url.URL) error {
	host := u.Hostname()
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return &HTTPHostError{Host: host, Reason: "its scheme is neither http nor https"}
	case u.User != nil:
		return &HTTPHostError{Host: host, Reason: "its URL has a user name or password"}
	case !slices.ContainsFunc(l, func(r hostRule) bool { return r.matches(normalHost(host), portOf(u)) }):
		return &HTTPHostError{Host: u.Host, Reason: "http.allow_hosts does not list it"}
	}
	return nil
}

// checkAddr returns a *HTTPHostError if a connection for host may not go to addr.
func (l hostList) checkAddr(host, port string, addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	host = normalHost(host)
	if isPublic(addr) || l.lists(addr.String(), port) || isLocalName(host) && l.lists(host, port) {
		return nil
	}
	return &HTTPHostError{Host: host, Addr: addr,
		Reason: fmt.Sprintf("its address %s is private: list %s in http.allow_hosts as well if that is meant", addr, addr)}
}

// lists reports whether host is on the list by its own name.
func (l hostList) lists(host, port string) bool {
	return slices.ContainsFunc(l, func(r hostRule) bool { return !r.below && r.matches(host, port) })
}

func (r hostRule) matches(host, port string) bool {
	if r.port != "" && r.port != port {
		return false
	}
	if r.below {
		below, ok := strings.CutSuffix(host, "."+r.host)
		return ok && isHostName(below)
	}
	return host == r.host
}

// guardedDialer checks each address at the moment of connecting to it, after
// the last name lookup: what a name meant a moment ago proves nothing.
type guardedDialer struct {
	net.Dialer
	hosts hostList
}

func (d *guardedDialer) dial(ctx context.Context, network, hostport string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	guarded := d.Dialer
	guarded.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return d.hosts.checkAddr(host, port, ap.Addr())
	}
	return guarded.DialContext(ctx, network, hostport)
}

// reserved are the ranges that IANA's registries of special-purpose addresses
// give to anything but hosts of the internet. Of IPv6, 2000::/3 is all there is.
var reserved = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
	"172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	nat64         = netip.MustParsePrefix("64:ff9b::/96") // an IPv4 address in its last 32 bits
)

func prefixes(ss ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(ss))
	for i, s := range ss {
		ps[i] = netip.MustParsePrefix(s)
	}
	return ps
}

// isPublic reports whether addr belongs to the internet.
func isPublic(addr netip.Addr) bool {
	addr = addr.Unmap()
	if nat64.Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	if addr.Is6() && !globalUnicast.Contains(addr) {
		return false
	}
	return !slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// isLocalName reports whether no name server of the internet has a say in what
// the name means: one without dots, or below a domain reserved for local use.
func isLocalName(host string) bool {
	if !strings.Contains(host, ".") {
		return true
	}
	return slices.ContainsFunc([]string{".localhost", ".local", ".internal", ".home.arpa", ".test"}, func(domain string) bool {
		return strings.HasSuffix(host, domain)
	})
}

// normalHost writes a host as the list does: lower case, no final dot, an
// address in its one normal form.
func normalHost(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func isHostName(s string) bool {
	return s != "" && s[0] != '.' && !strings.Contains(s, "..") && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	})
}

// portOf returns the port that a URL means.
func portOf(u *url.URL) string {
	switch port := u.Port(); {
	case port != "":
		return port
	case u.Scheme == "http":
		return "80"
	default:
		return "443"
	}
}
