// Package httplimit holds an [http.Client] to a limit, and reads from responses what an API says
// about its limits.
//
//	client := &http.Client{Transport: httplimit.Transport(http.DefaultTransport, limiter)}
//
// With [Transport] each request, and each redirect, takes a permit once its connection is there, right
// before it is written. A response of 429 or 503 that says when to try again pauses the limit, for the
// whole fleet. [RetryAfter] reads that time, and [Read] everything that headers say: the IETF's RateLimit,
// X-RateLimit, and those of GitHub, OpenAI, Shopify, Slack and Stripe (a [Preset]).
package httplimit

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/ahead"
)

const (
	// maxHTTPPause bounds what one response can do to the fleet: if a server asks for a day, by
	// mistake or malice, it is asked again after an hour.
	maxHTTPPause = time.Hour
	// resends bounds how often one request is sent over another connection, besides what base sends again by itself.
	resends = 3
	// pauseTimeout bounds how long a response waits until its pause is recorded, if Redis is slow
	// or away.
	pauseTimeout = 2 * time.Second
)

// Acquirer is what [Transport] needs of a limit. A throttle.Limiter and a throttle.Group are
// Acquirers.
type Acquirer interface {
	Acquire(ctx context.Context, n int64) error
	Pause(ctx context.Context, d time.Duration) error
}

// Transport returns an [http.RoundTripper] that sends requests through base, each with one permit
// of a. A nil base means [http.DefaultTransport].
//
// The permit comes after the connection: a request gets its connection, new or idle, then waits
// for its permit, then is written at once. So a permit does not get old during name lookup,
// dialling or the TLS handshake, and no window at the server holds more requests than the rate
// allows. Each redirect that an http.Client follows needs another permit. To keep several limits
// pass a Group: with Transports inside one another, the first permit would age while the second
// is waited for.
//
// Servers close connections on which nothing comes. So if requests wait for more than a second,
// and a is a throttle.Limiter (not one of For) or a throttle.Group, those that follow reserve
// their permits first, and get their connections a second before these are due. If a connection is
// closed before the permit is due, the request keeps its permit and is sent over another one,
// unless it has a body without GetBody. After three such attempts it fails. With any other a,
// net/http decides: it sends some requests again, with another permit, and others fail. Then their
// permit counts as used. The same happens over HTTP/2 if the server has announced that it will
// close a connection, but has not closed it yet.
//
// If Acquire fails, nothing of the request is written, its body is closed, and RoundTrip returns
// the error of Acquire. An HTTP/1 connection is closed with it, since nothing else keeps net/http
// from writing; an HTTP/2 connection stays, for the streams of others.
//
// If a is an [Observer], such as a limiter that adapts, it is told what a response says about a
// limit.
//
// A 429 or 503 response that says how long to stay away, see [RetryAfter], pauses a for that
// long, at most an hour, before it is returned. If the pause cannot be recorded, the response is
// returned all the same: it tells the caller more than that failure would.
//
// Only an [*http.Transport] is known to announce its connections. With any other base the permit
// is acquired before base is called; what base does until it writes then makes the permit older
// than necessary. Wrap the *http.Transport first, and put other layers (tracing, authentication)
// around the result.
func Transport(base http.RoundTripper, a Acquirer) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{base: base, acquirer: a, reserve: ahead.Reserver(a)}
}

type transport struct {
	base     http.RoundTripper
	acquirer Acquirer
	reserve  func(context.Context) (ahead.Reservation, error) // nil: permits can only be acquired
	waits    atomic.Bool                                      // a request has just waited for longer than connects
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	g := &gate{transport: t, ctx: ctx, cancel: cancel}
	defer g.giveBack()
	if err := t.begin(req, g); err != nil {
		cancel(nil)
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: g.getConn, GotConn: g.gotConn})
	resp, err := t.base.RoundTrip(req.WithContext(traced))
	for n := 0; err != nil && n < resends && t.announces(req) && g.goesOn(); n++ { // base does not send all requests again by itself
		again, failed := renewed(req)
		if again == nil {
			err = cmp.Or(failed, err)
			break
		}
		resp, err = t.base.RoundTrip(again.WithContext(traced))
	}
	if refused := g.refused(); refused != nil {
		if err == nil && resp != nil && resp.Body != nil { // base ignored its context
			resp.Body.Close()
		}
		return nil, refused
	}
	if err != nil || resp == nil {
		cancel(nil)
		return resp, err
	}
	observe(t.acquirer, g.acquired(), resp)
	if d, ok := RetryAfter(resp); ok && d > 0 {
		t.pause(ctx, d)
	}
	resp.Request = req
	resp.Body = endWith(resp.Body, func() { cancel(nil) })
	return resp, nil
}

// begin acquires the permit, if base does not say when it has a connection. If requests wait for long, it reserves it.
func (t *transport) begin(req *http.Request, g *gate) (err error) {
	switch {
	case !t.announces(req):
		err = t.acquirer.Acquire(g.ctx, 1)
		g.paid, g.at = true, time.Now()
	case t.reserve != nil && t.waits.Load():
		err = g.comeNear(connects)
	}
	return err
}

// CloseIdleConnections is what http.Client.CloseIdleConnections calls.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// pause does not end with the request's context: if the caller gives up, the server has still
// asked for the pause.
func (t *transport) pause(ctx context.Context, d time.Duration) {
	if d > connects {
		t.waits.Store(true)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseTimeout)
	defer cancel()
	_ = t.acquirer.Pause(ctx, min(d, maxHTTPPause)) // see Transport: the response says more
}

// announces reports whether base calls GotConn before it writes req.
func (t *transport) announces(req *http.Request) bool {
	_, ok := t.base.(*http.Transport)
	return ok && req.URL != nil && (req.URL.Scheme == "http" || req.URL.Scheme == "https")
}

// exclusive reports whether conn carries one request at a time, so that closing it harms no
// other: HTTP/1. HTTP/2 is agreed on in the TLS handshake or, with unencrypted HTTP/2,
// beforehand.
func (t *transport) exclusive(conn net.Conn) bool {
	if c, ok := conn.(*tls.Conn); ok {
		return c.ConnectionState().NegotiatedProtocol != "h2"
	}
	base, ok := t.base.(*http.Transport)
	return !ok || base.Protocols == nil || base.Protocols.HTTP1() || !base.Protocols.UnencryptedHTTP2()
}

// endWith returns a body that calls end when it is closed. The body of a 101 response can be
// written to, and still can afterwards.
func endWith(body io.ReadCloser, end func()) io.ReadCloser {
	if body == nil || body == http.NoBody {
		end() // there is nothing to wait for, and callers compare with NoBody
		return body
	}
	b := endingBody{body, end}
	if w, ok := body.(io.Writer); ok {
		return upgradedBody{b, w}
	}
	return b
}

type endingBody struct {
	io.ReadCloser
	end func()
}

func (b endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

type upgradedBody struct {
	endingBody
	io.Writer
}

// CloseWrite ends what is written, if the connection can do so. An httputil.ReverseProxy calls it.
func (b upgradedBody) CloseWrite() error {
	if c, ok := b.Writer.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return http.ErrNotSupported
}
