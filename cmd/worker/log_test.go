package main

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// TestStandardLog: an API sends more than its answer. net/http prints that to the standard logger, and the worker's log has it
// without what the API sent.
func TestStandardLog(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	before, flags := log.Writer(), log.Flags()
	t.Cleanup(func() { log.SetOutput(before); log.SetFlags(flags) })
	logStandard(zap.New(core))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		br := bufio.NewReader(conn)
		if _, err := http.ReadRequest(br); err == nil {
			io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n{\"access_token\":\"s3cret\"}")
			_, _ = br.ReadByte()
		}
	}()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	resp, err := (&http.Client{Transport: base}).Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	testkit.Eventually(t, 10*time.Second, "the worker's log has it", func() bool { return logs.Len() > 0 })
	for _, entry := range logs.All() {
		if !strings.Contains(entry.Message, "Unsolicited response") || strings.Contains(entry.Message, "s3cret") {
			t.Errorf("the log has %q", entry.Message)
		}
	}
}
