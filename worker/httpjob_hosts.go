package worker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/jobthrottle/jobthrottle/internal/hosts"
)

// hostList is http.allow_hosts, and what follows from it for addresses.
//
// Private addresses are different from names. Whoever runs a name server decides what a name
// means, so a name on the list does not open the private network. A connection to an address is
// allowed in three cases: it is public; it is on the list itself; or the name is on the list
// (not by a *) and can only be a local one, such as localhost, a name without dots, or one
// below .internal.
//
// The dialer compares the name with the list again, so that nothing that passes the first check
// gets a connection.
type hostList struct{ hosts.List }

// check returns a *HTTPHostError if jobs may not call the URL.
func (l hostList) check(u *url.URL) error {
	host := u.Hostname()
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return &HTTPHostError{Host: host, Reason: "its scheme is neither http nor https"}
	case u.User != nil:
		return &HTTPHostError{Host: host, Reason: "its URL has a user name or password"}
	}
	if reason := l.Refuses(host, portOf(u)); reason != "" {
		return &HTTPHostError{Host: u.Host, Reason: reason}
	}
	return nil
}

// checkAddr returns a *HTTPHostError if a connection for host may not go to addr.
func (l hostList) checkAddr(host, port string, addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	host = hosts.Normal(host)
	if isPublic(addr) || l.Names(addr.String(), port) || isLocalName(host) && l.Names(host, port) {
		return nil
	}
	return &HTTPHostError{Host: host, Addr: addr,
		Reason: fmt.Sprintf("its address %s is private: list %s in http.allow_hosts as well if that is meant", addr, addr)}
}

// guardedDialer checks the host and port that are dialled, whoever asked for them. It checks
// each address when it connects to it, after the last name lookup: an earlier lookup proves
// nothing.
type guardedDialer struct {
	net.Dialer
	hosts hostList
}

func (d *guardedDialer) dial(ctx context.Context, network, hostport string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	if reason := d.hosts.Refuses(host, port); reason != "" {
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

// reserved are the ranges that IANA's registries of special-purpose addresses give to anything
// except hosts of the internet. For IPv6, only 2000::/3 is assigned to such hosts.
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

// isLocalName reports whether no name server of the internet decides what the name means: it
// has no dots, or is below a domain reserved for local use.
func isLocalName(host string) bool {
	if !strings.Contains(host, ".") {
		return true
	}
	return slices.ContainsFunc([]string{".localhost", ".local", ".internal", ".home.arpa", ".test"}, func(domain string) bool {
		return strings.HasSuffix(host, domain)
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
