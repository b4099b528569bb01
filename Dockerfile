# docker build -t darter . && docker run --name darter -p 127.0.0.1:6379:6379 -v darter:/data darter --protected-mode no
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
# --build-arg FEATURES=cloud for snapshots in s3://, gs:// and az://
ARG FEATURES=""
RUN cargo build --release --locked -p darter --features "$FEATURES" \
    && strip target/release/darter \
    && mkdir /empty

# For x86-64 and arm64: `docker buildx build --platform linux/amd64,linux/arm64 -t darter .`
# glibc, libgcc and certificates, nothing else: no shell, no package manager. User 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /source/target/release/darter /usr/bin/darter
COPY --from=build --chown=nonroot:nonroot /empty /data
USER nonroot
LABEL org.opencontainers.image.title="Darter" \
      org.opencontainers.image.description="In-memory data store that speaks the protocols of Redis and memcached" \
      org.opencontainers.image.licenses="Apache-2.0"
# Snapshots and the journal are written to the working folder.
WORKDIR /data
VOLUME /data
EXPOSE 6379
# SIGTERM saves before the end.
STOPSIGNAL SIGTERM
# The port is 6379, or DFLY_port for the server and the check alike: docker run -e DFLY_port=7000 ...
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["/usr/bin/darter", "--ping"]
ENTRYPOINT ["/usr/bin/darter"]
