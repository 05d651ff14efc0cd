# docker build -t vendue .
FROM rust:1-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked -p vendue

FROM debian:bookworm-slim
COPY --from=build /src/target/release/vendue /src/target/release/vendue-supervisor /usr/local/bin/
# Root on purpose: a rep starts every instance as nobody, which only root can do. The other roles
# need no rights at all; docker-compose.yml runs them as nobody themselves.
ENTRYPOINT ["vendue"]
