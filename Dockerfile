# docker build -t darter . && docker run --name darter -p 127.0.0.1:6379:6379 -v darter:/data darter --protected-mode no
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
# --build-arg FEATURES=cloud for snapshots in s3://, gs:// and az://
ARG FEATURES=""
RUN cargo build --release --locked -p darter --features "$FEATURES" \
    && strip target/release/darter \
    && mkdir /empty

# glibc, libgcc and certificates, nothing else: no shell, no package manager. User 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /source/target/release/darter /usr/bin/darter
COPY --from=build --chown=nonroot:nonroot /empty /data
USER nonroot
# Snapshots and the journal go where the server is started.
WORKDIR /data
VOLUME /data
EXPOSE 6379
# The server saves at its end unless it is told not to.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["/usr/bin/darter", "--ping"]
ENTRYPOINT ["/usr/bin/darter"]
