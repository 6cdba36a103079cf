package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"os/signal"
	"strings"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/embedded"
	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/worker"
	"github.com/jobthrottle/jobthrottle/worker/admin"
)

// load reads the configuration.
func (o options) load() (*config.Config, error) {
	cfg, err := config.Load(o.config)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !o.named:
		return nil, &cli.UsageError{Err: fmt.Errorf("there is no %s in this directory: name another file with --config, or try worker --demo, which needs none", o.config)}
	case err != nil:
		return nil, &cli.UsageError{Err: err}
	}
	return cfg, nil
}

// runWorker runs the worker of a configuration file until ctx ends.
func runWorker(ctx context.Context, opts options, stdout, stderr io.Writer) (err error) {
	cfg, err := opts.load()
	if err != nil {
		return err
	}
	logger, err := newLogger(cfg.Log, stderr)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	say := func(format string, args ...any) { fmt.Fprintln(stdout, plain.Text(fmt.Sprintf(format, args...))) }
	if cfg.Log.Format == "json" { // then all output is JSON
		say = func(format string, args ...any) { logger.Info(fmt.Sprintf(format, args...)) }
		defer func() {
			if err != nil {
				logger.Error("the worker ends", zap.Error(err))
				err = &cli.ToldError{Err: err}
			}
		}()
	}
	if !opts.named {
		say("%s", cli.UsingDefault)
	}
	if opts.adminAddr != "" {
		cfg.Admin.Addr = opts.adminAddr
		if err := cfg.Validate(); err != nil {
			return &cli.UsageError{Err: fmt.Errorf("--admin-addr: %w", err)}
		}
	}
	logStandard(logger)
	signal.Ignore(syscall.SIGPIPE) // whoever reads the log may end: a write to it fails then, and the worker goes on
	if opts.embedded {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		cfg.Redis = config.Redis{Addrs: []string{server.Addr()}}
		text := fmt.Sprintf("embedded Redis on %[1]s: enqueue with --redis %[1]s; it forgets everything at the end", server.Addr())
		switch shown, err := newLogger(config.Log{Level: "info", Format: "json"}, stderr); {
		case err != nil:
			return err
		case cfg.Log.Format == "json": // whatever log.level is: only this line has the address
			shown.Info(text)
		default:
			say("%s", text)
		}
	}
	var listener net.Listener // of the admin address, if there is one
	if cfg.Admin.Addr != "" {
		if listener, err = admin.Listen(cfg.Admin.Addr); err != nil {
			return err
		}
		defer listener.Close()
	}
	w, err := worker.New(cfg, logger)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	stopTraces, err := startTraces(ctx, logger, w.ID())
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	defer stopTraces()
	if listener != nil {
		a := admin.Serve(listener, w, admin.Options{Token: cfg.Admin.Token, Hosts: cfg.Admin.Hosts, Hide: cfg.Admin.Hide, Logger: logger})
		defer a.Close()
		say("dashboard on http://%[1]s/%[2]s, metrics on http://%[1]s/metrics, health on http://%[1]s/healthz and /readyz", listener.Addr(), readOnly(cfg))
	}
	for _, line := range w.Summary() {
		say("%s", line)
	}
	return w.Run(ctx)
}

// logStandard makes the logger get what net/http prints, which has no logger of its own.
func logStandard(logger *zap.Logger) {
	log.SetFlags(0)
	log.SetOutput(standardLog{logger})
}

// standardLog leaves out what net/http quotes of what an API sends after the end of an answer: that may be secret.
type standardLog struct{ logger *zap.Logger }

func (s standardLog) Write(text []byte) (int, error) {
	said, _, _ := strings.Cut(strings.TrimSpace(string(text)), " starting with ")
	s.logger.Warn(said)
	return len(text), nil
}

// readOnly says so if the dashboard can change nothing.
func readOnly(cfg *config.Config) string {
	unset := strings.Trim(cfg.UnsetIn("admin.token"), " ()")
	switch {
	case cfg.Admin.Token != "":
		return ""
	case unset != "":
		return " (read only: admin.token is empty, because " + unset + ")"
	}
	return " (read only: admin.token is not set)"
}

// newLogger returns a logger that writes as the configuration says.
func newLogger(cfg config.Log, out io.Writer) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(cfg.Level)
	if err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.ISO8601TimeEncoder
	encoder := zapcore.NewConsoleEncoder(encoding)
	if cfg.Format == "json" {
		encoder = zapcore.NewJSONEncoder(encoding)
	}
	return zap.New(zapcore.NewCore(plain.Encoder(encoder), zapcore.Lock(zapcore.AddSync(out)), level)), nil
}
