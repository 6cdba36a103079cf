# The three commands, in an image with nothing else: no shell, no package manager.
#
#   docker build --build-arg VERSION="$(git describe --tags --always --dirty)" -t jobthrottle .
#   docker run --rm jobthrottle --demo
#
# The worker reads /etc/jobthrottle/config.yaml, which has to be mounted.

FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# What --version says. Without it (devel): there is no .git here.
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w -X github.com/jobthrottle/jobthrottle/internal/version.stamped=${VERSION}" \
    -o bin/ ./cmd/worker ./cmd/enqueue ./cmd/throttle

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/bin/ /usr/local/bin/
ENV PATH=/usr/local/bin
# Nobody in particular. A number: Kubernetes sees that it is not root.
USER 65532:65532
WORKDIR /etc/jobthrottle
EXPOSE 9464
# SIGTERM lets running jobs finish: give them longer than shutdown_timeout (docker stop --timeout).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["worker", "--health", "--admin-addr", "127.0.0.1:9464"]
ENTRYPOINT ["worker"]
CMD ["--config", "config.yaml", "--admin-addr", "0.0.0.0:9464"]
