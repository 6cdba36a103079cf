package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/plain"
)

// healthTime is how long the question may take at most. It is less than the 3s to 5s that
// supervisors commonly allow, so that they see the reason.
const healthTime = 2 * time.Second

// runHealth asks the worker on this machine that serves the admin address whether it is alive.
// It is for supervisors of images that have no curl. It ignores whether Redis answers: a worker
// without Redis waits, and a restart does not help it.
func runHealth(ctx context.Context, opts options, stdout io.Writer) error {
	addr := opts.adminAddr
	if addr == "" {
		cfg, err := opts.load()
		if err != nil {
			return err
		}
		addr = cfg.Admin.Addr
	}
	if addr == "" {
		return &cli.UsageError{Err: errors.New("--health asks the admin address, and there is none: set admin.addr in the configuration, or give --admin-addr")}
	}
	addr, err := fromHere(addr)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	answer, err := ask(ctx, "http://"+addr+"/healthz")
	if err != nil {
		return fmt.Errorf("no healthy worker on %s: %w", addr, err)
	}
	fmt.Fprintln(stdout, plain.Text(answer))
	return nil
}

// fromHere returns the address at which a process of the same machine reaches a server that
// listens on addr. For an address that means all interfaces, it is the loopback address.
func fromHere(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil:
		return "", fmt.Errorf("invalid admin address %q: want HOST:PORT, such as 127.0.0.1:9464", addr)
	case port == "0":
		return "", fmt.Errorf("admin address %s: the worker picks a free port, so --health cannot know it: name one", addr)
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "" || err == nil && ip.Is4() && ip.IsUnspecified():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
}

// ask returns the first line that the URL answers with, or an error unless the status is 200.
// It does not use proxies from the environment.
func ask(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1024))
	if err != nil {
		return "", err
	}
	answer, _, _ := strings.Cut(string(body), "\n")
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("it answers %s: %s", resp.Status, answer)
	}
	return answer, nil
}
