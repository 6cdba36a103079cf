package admin

import "testing"

func TestOnLoopback(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:0": true, "[::1]:0": true, "0.0.0.0:0": false, ":0": false} {
		listener, err := Listen(addr)
		if err != nil {
			if addr == "[::1]:0" {
				continue // a machine without IPv6
			}
			t.Fatal(err)
		}
		defer listener.Close()
		if got := onLoopback(listener.Addr()); got != want {
			t.Errorf("%s: %t, want %t", addr, got, want)
		}
	}
}
