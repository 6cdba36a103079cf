// Package hosts reads http.allow_hosts: the hosts that jobs may call.
//
// Only hosts written in ASCII can be listed. net/http dials those as they are written, but
// converts others to their IDNA form. That is another name than any upper or lower case of them.
// The name that is compared with the list has to be the name that is dialled.
package hosts

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// List is the hosts that jobs may call.
type List []Rule

// Rule is one element of a List:
//
//	api.example.com        this host, any port
//	api.example.com:8443   this host, this port
//	*.example.com          every host below example.com, not itself; :port as above
//	10.0.0.5, [::1]:8080   this address
type Rule struct {
	Host  string // as Normal writes it
	Port  string // empty means any
	Below bool   // every host below Host, instead of Host
}

// Parse reads a List.
func Parse(rules []string) (List, error) {
	l := make(List, 0, len(rules))
	for _, s := range rules {
		r, err := ParseRule(s)
		if err != nil {
			return nil, err
		}
		l = append(l, r)
	}
	return l, nil
}

// ParseRule parses a Rule. Its error says what would be right.
func ParseRule(s string) (Rule, error) {
	r, ok := parseRule(s)
	if !ok {
		return Rule{}, fmt.Errorf("invalid host %q: want HOST, HOST:PORT or *.DOMAIN in ASCII, such as api.example.com", s)
	}
	return r, nil
}

func parseRule(s string) (r Rule, ok bool) {
	host, below := strings.CutPrefix(s, "*.")
	r.Below = below
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		r.Host = Normal(addr.String())
		return r, !below && addr.Zone() == ""
	}
	if h, port, err := net.SplitHostPort(host); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return r, false
		}
		host, r.Port = h, strconv.FormatUint(n, 10)
	}
	r.Host = Normal(host)
	if _, err := netip.ParseAddr(r.Host); err == nil && below {
		return r, false
	}
	return r, isHost(r.Host)
}

// Refuses says why the host and port are not on the list. It returns "" if they are.
func (l List) Refuses(host, port string) (reason string) {
	name := Normal(host)
	switch {
	case !IsASCII(host):
		return "http.allow_hosts names hosts in ASCII only: write it as it is looked up, such as xn--bcher-kva.example"
	case !isHost(name) || !slices.ContainsFunc(l, func(r Rule) bool { return r.matches(name, port) }):
		return "http.allow_hosts does not list it"
	}
	return ""
}

// Names reports whether the host, as Normal writes it, is on the list by its own name, not by a
// *.
func (l List) Names(host, port string) bool {
	return slices.ContainsFunc(l, func(r Rule) bool { return !r.Below && r.matches(host, port) })
}

func (r Rule) matches(host, port string) bool {
	if r.Port != "" && r.Port != port {
		return false
	}
	if r.Below {
		below, ok := strings.CutSuffix(host, "."+r.Host)
		return ok && isHostName(below)
	}
	return host == r.Host
}

// Normal writes a host as the list does: lower case, no final dot, an address in its one normal
// form. Only ASCII letters change: some other letters have lower cases in ASCII.
func Normal(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return host // no list has it; Unmap would drop the zone
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

// IsASCII reports whether a list could have the host at all.
func IsASCII(host string) bool {
	return !strings.ContainsFunc(host, func(c rune) bool { return c > unicode.MaxASCII })
}

// isHost reports whether s, written by Normal, is a name or an address. A name whose last label
// is a number is neither: some resolvers read 127.1 and 2130706433 as addresses.
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
