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
	"unicode"
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
//
// Only hosts written in ASCII are ever allowed. net/http dials those as they
// stand, but turns others into their IDNA form, which is another name than any
// upper or lower case of them: what is compared with the list has to be what is
// dialled. The dialer compares again, so that nothing that gets past the first
// look gets a connection.
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
	if _, err := netip.ParseAddr(r.host); err == nil && below {
		return r, false
	}
	return r, isHost(r.host)
}

// check returns a *HTTPHostError if jobs may not call the URL.
func (l hostList) check(u *url.URL) error {
	host := u.Hostname()
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return &HTTPHostError{Host: host, Reason: "its scheme is neither http nor https"}
	case u.User != nil:
		return &HTTPHostError{Host: host, Reason: "its URL has a user name or password"}
	}
	if reason := l.refuses(host, portOf(u)); reason != "" {
		return &HTTPHostError{Host: u.Host, Reason: reason}
	}
	return nil
}

// refuses says why the list does not have the host and port; nothing if it does.
func (l hostList) refuses(host, port string) (reason string) {
	name := normalHost(host)
	switch {
	case !isASCII(host):
		return "http.allow_hosts names hosts in ASCII only: write it as it is looked up, such as xn--bcher-kva.example"
	case !isHost(name) || !slices.ContainsFunc(l, func(r hostRule) bool { return r.matches(name, port) }):
		return "http.allow_hosts does not list it"
	}
	return ""
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

// guardedDialer checks the host and port that are dialled, whoever asked for
// them, and each address at the moment of connecting to it, after the last name
// lookup: what a name meant a moment ago proves nothing.
type guardedDialer struct {
	net.Dialer
	hosts hostList
}

func (d *guardedDialer) dial(ctx context.Context, network, hostport string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	if reason := d.hosts.refuses(host, port); reason != "" {
		return nil, &HTTPHostError{Host: hostport, Reason: reason}
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
// address in its one normal form. Only ASCII letters change: others have lower
// cases in ASCII.
func normalHost(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return host // which no list has; Unmap would drop the zone
		}
		return addr.Unmap().String()
	}
	return lowerASCII(strings.TrimSuffix(host, "."))
}

func lowerASCII(s string) string {
	return strings.Map(func(c rune) rune {
		if 'A' <= c && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return c
	}, s)
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c > unicode.MaxASCII })
}

// isHost reports whether s, which is as normalHost writes it, is a name or an
// address. A name whose last label is a number is neither: some resolvers read
// 127.1 and 2130706433 as addresses.
func isHost(s string) bool {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Zone() == ""
	}
	last, digits := s[strings.LastIndexByte(s, '.')+1:], "0123456789"
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		last, digits = hex, "0123456789abcdef"
	}
	return isHostName(s) && strings.Trim(last, digits) != ""
}

func isHostName(s string) bool {
	return s != "" && s[0] != '.' && !strings.HasSuffix(s, ".") && !strings.Contains(s, "..") && !strings.ContainsFunc(s, func(c rune) bool {
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
