package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// guard decides which requests are allowed.
type guard struct {
	token    string
	hosts    []string                 // names of this address, in addition to those that are always allowed
	loopback func(*http.Request) bool // whether only this machine can send the request
	guesses  *guesses
}

// read allows requests that come from the page itself or from no web page at all. Other sites
// must not read the reply, or request it repeatedly in somebody's browser.
func (g guard) read(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if otherSite(r) {
			refuse(w, http.StatusForbidden, "another site's page sent this request")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// otherSite reports whether a browser says that another site's page sent the request. Tools say
// nothing.
func otherSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	from, err := url.Parse(origin)
	return err != nil || from.Host != r.Host
}

// change allows requests that come from the page itself or from no web page at all, and have
// the token. It does so however many requests with wrong tokens come.
func (g guard) change(next http.HandlerFunc) http.Handler {
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "another site's page sent this request")
	}))
	return origin.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.token == "" {
			refuse(w, http.StatusForbidden, "read only: to change limits, set admin.token in the configuration")
			return
		}
		g.withToken(w, r, next)
	}))
}

// withToken allows requests that have the token. Others are answered late.
func (g guard) withToken(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	if token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); found && equal(token, g.token) {
		next(w, r)
		return
	}
	at, ok := g.guesses.wrong(time.Now(), r.RemoteAddr, r.URL.Path)
	if !ok {
		refuse(w, http.StatusTooManyRequests, "too many wrong tokens just now; the right one still gets through")
		return
	}
	// The server only sees that a client has gone once its body is read.
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody)); err == nil {
		waitUntil(r.Context(), at)
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	refuse(w, http.StatusUnauthorized, "the token is missing or wrong: send admin.token of the configuration as Authorization: Bearer")
}

// jobs is read for requests that show the contents of jobs: payloads, errors, results. The
// request has to name this host by an address, by a name that can only belong to this network
// or is configured, or have the token. Otherwise a stranger could point his own name at this
// address with his name server, and a browser would not see his page as another site.
func (g guard) jobs(next http.HandlerFunc) http.Handler {
	return g.read(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch name := hostOf(r); {
		case g.isOurs(name):
			next(w, r)
		case g.token != "" && r.Header.Get("Authorization") != "":
			g.withToken(w, r, next)
		default:
			refuse(w, http.StatusForbidden, fmt.Sprintf("jobs are not shown under %.100q, which may be anybody's name: list it in admin.hosts of the configuration, ask by the address, or send the token", name))
		}
	}))
}

// ownDomains are domains that nobody can register.
var ownDomains = []string{".local", ".internal", ".svc", ".localhost", ".home.arpa", ".test"}

// isOurs reports whether a host cannot belong to a stranger.
func (g guard) isOurs(name string) bool {
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	own := func(domain string) bool { return strings.HasSuffix(name, domain) }
	return err == nil || !strings.Contains(name, ".") || slices.ContainsFunc(ownDomains, own) ||
		slices.ContainsFunc(g.hosts, func(host string) bool { return strings.EqualFold(host, name) })
}

// hostOf is the host that a request names, without a port.
func hostOf(r *http.Request) string {
	if h, _, err := net.SplitHostPort(r.Host); err == nil {
		return h
	}
	return r.Host
}

// equal takes the same time for a near miss as for any other string, of any length.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// host refuses requests for names that do not belong to a loopback address: a browser sends
// them if a stranger's name server has pointed his name here.
func (g guard) host(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.loopback(r) {
			next.ServeHTTP(w, r)
			return
		}
		host := hostOf(r)
		ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if !strings.EqualFold(host, "localhost") && (err != nil || !ip.IsLoopback()) {
			refuse(w, http.StatusForbidden, fmt.Sprintf("this address serves localhost, not %.100q: have the proxy send Host: localhost, or serve another address with admin.addr", host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// onLoopback reports whether only this machine can connect to the address.
func onLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// cameByLoopback reports whether the request came to a loopback address.
func cameByLoopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && onLoopback(addr)
}

// cleanPath refuses what http.ServeMux would redirect: no honest client sends it.
func cleanPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := r.URL.EscapedPath()
		if clean := path.Clean(p); clean != p && clean+"/" != p {
			refuse(w, http.StatusBadRequest, "the path has empty or dotted segments")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// headers tell browsers to run only the page's own files, and to show them nowhere else.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// onEvery reports whether the address is every address of this machine.
func onEvery(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsUnspecified()
}
