# docker build -t vendue .
FROM rust:1-slim-bookworm AS build
# `dist` is what is shipped; `release` builds faster
ARG PROFILE=dist
WORKDIR /src
COPY . .
RUN cargo build --profile "$PROFILE" --locked -p vendue \
 && mkdir /out && cp "target/$PROFILE/vendue" "target/$PROFILE/vendue-supervisor" /out/

FROM debian:bookworm-slim
COPY --from=build /out/ /usr/local/bin/
# Root on purpose: a rep starts each instance as a user of its own, which only root can do. The other roles need
# no rights at all; docker-compose.yml runs them as nobody.
ENTRYPOINT ["vendue"]
