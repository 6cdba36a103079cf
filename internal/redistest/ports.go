package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

const (
	// Ports are from a range below those that Linux gives to whoever does not ask for one, and so are those of cluster
	// buses.
	firstPort, lastPort = 11_000, 21_999
	blockSize           = 100
)

// ports are those that the tests of this process may use. The first port of a block is listened on for as long as the
// process runs: the others are for nobody else, so a server that was stopped finds its port free when it starts again.
var ports = struct {
	sync.Mutex
	block net.Listener
	used  map[string]bool
}{used: map[string]bool{}}

// FreeAddr returns a loopback address that nothing listens on. Until the test ends, no other test that asks for one
// gets it, in this process or in another.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	ports.Lock()
	defer ports.Unlock()
	var err error
	for blocks := (lastPort + 1 - firstPort) / blockSize; ports.block == nil; blocks-- {
		if blocks == 0 {
			tb.Fatalf("no free loopback ports from %d to %d: %v", firstPort, lastPort, err)
		}
		ports.block, err = listen(firstPort + blockSize*rand.N((lastPort+1-firstPort)/blockSize))
	}
	block := ports.block.Addr().(*net.TCPAddr).Port
	for _, i := range rand.Perm(blockSize - 1) {
		l, err := listen(block + 1 + i)
		if err != nil {
			continue
		}
		addr := l.Addr().String()
		l.Close()
		if ports.used[addr] {
			continue
		}
		ports.used[addr] = true
		tb.Cleanup(func() {
			ports.Lock()
			defer ports.Unlock()
			delete(ports.used, addr)
		})
		return addr
	}
	tb.Fatalf("no free loopback port from %d to %d", block+1, block+blockSize-1)
	return ""
}

func listen(port int) (net.Listener, error) { return net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)) }
