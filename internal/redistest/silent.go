package redistest

import (
	"net"
	"sync"
	"testing"
)

// Silent starts a server that accepts connections and never answers, until the test ends. It
// returns its address, and a channel that is closed with the first connection.
func Silent(tb testing.TB) (addr string, connected <-chan struct{}) {
	tb.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	first := make(chan struct{})
	once := sync.OnceFunc(func() { close(first) })
	var accepts sync.WaitGroup
	accepts.Go(func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			once()
		}
	})
	tb.Cleanup(func() {
		server.Close()
		accepts.Wait()
	})
	return server.Addr().String(), first
}
