package admin

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const token = "a token of some length"

// TestGuessesAreForgotten: however many came, and whether they waited for the
// answer or hung up, the next is answered within the longest wait.
func TestGuessesAreForgotten(t *testing.T) {
	for _, tt := range []struct {
		name   string
		hangUp bool
	}{{"they wait", false}, {"they hang up", true}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard{token: token, guesses: &guesses{logger: slog.New(slog.DiscardHandler)}}
				h := g.change(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
				ask := func(ctx context.Context, token string) (status int, took time.Duration) {
					r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/api/limits/api/pause", strings.NewReader(`{}`))
					r.Header.Set("Authorization", "Bearer "+token)
					w, start := httptest.NewRecorder(), time.Now()
					h.ServeHTTP(w, r)
					return w.Code, time.Since(start)
				}
				ctx, cancel := context.WithCancel(t.Context())
				statuses := make(chan int, 10*maxGuessing)
				for range cap(statuses) {
					go func() {
						status, _ := ask(ctx, "guess")
						statuses <- status
					}()
				}
				synctest.Wait() // those that are refused are answered, the others wait
				if refused := len(statuses); refused != cap(statuses)-maxGuessing {
					t.Errorf("%d of %d are refused at once, want all but %d", refused, cap(statuses), maxGuessing)
				}
				if status, took := ask(t.Context(), token); status != http.StatusOK || took != 0 {
					t.Errorf("the right token meanwhile: %d after %v", status, took)
				}
				if tt.hangUp {
					cancel()
					synctest.Wait()
				}
				time.Sleep(guessEvery)
				if status, took := ask(t.Context(), "guess"); status != http.StatusUnauthorized || took > maxGuessing*guessEvery {
					t.Errorf("the next: %d after %v, want it within %v", status, took, maxGuessing*guessEvery)
				}
				time.Sleep(maxGuessing * guessEvery)
				if status, took := ask(t.Context(), "guess"); status != http.StatusUnauthorized || took != guessEvery {
					t.Errorf("later: %d after %v, want %v", status, took, guessEvery)
				}
				cancel()
			})
		})
	}
}

// TestGuessesThatHangUp: a connection that is gone holds nothing, though the
// request had a body.
func TestGuessesThatHangUp(t *testing.T) {
	g := guard{token: token, guesses: &guesses{logger: slog.New(slog.DiscardHandler)}}
	h := g.change(func(http.ResponseWriter, *http.Request) { t.Error("let through") })
	handled := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		close(handled)
	}))
	defer server.Close()
	var last time.Time
	for range maxGuessing - 1 {
		last, _ = g.guesses.wrong(time.Now(), "another", "/")
	}
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer guess\r\nContent-Length: 14\r\n\r\n{\"for\": \"30s\"}")
	conn.Close()
	<-handled
	if now := time.Now(); !now.Before(last) {
		t.Errorf("handled %v after the answers of those before, want at once", now.Sub(last))
	}
}
