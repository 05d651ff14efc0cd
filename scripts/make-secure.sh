#!/usr/bin/env bash
# Makes what docker-compose.secure.yml needs: keys and permissions (vendue auth), a certificate for the
# server (openssl), and for each container a directory with its own keys and the authority's certificate.
#
#   scripts/make-secure.sh             VENDUE=path/to/vendue, VENDUE_AUTH_DIR=directory [./vendue-auth]
#
# Needs vendue and openssl. A directory that is there already is left as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly dir=${VENDUE_AUTH_DIR:-$PWD/vendue-auth} vendue=${VENDUE:-vendue}
readonly auctioneers=(auctioneer-1 auctioneer-2) managers=(manager-1) cells=(z1-cell-0 z1-cell-1 z2-cell-0 z2-cell-1)
readonly valid_days=365

if [ -e "$dir" ]; then
    echo "make-secure: $dir is there already: remove it to begin anew" >&2
    exit 1
fi
# keys must be readable by their owner only from the moment they exist
umask 077
readonly root=$PWD

"$vendue" auth --dir "$dir" init --nats tls://127.0.0.1:4222 --tls-ca "$dir/tls/ca.pem"
"$vendue" auth --dir "$dir" add-auctioneer "${auctioneers[@]}"
"$vendue" auth --dir "$dir" add-manager "${managers[@]}"
"$vendue" auth --dir "$dir" add-cell "${cells[@]}"
"$vendue" auth --dir "$dir" add-user alice
"$vendue" auth --dir "$dir" add-user olga --role operator

# an authority of our own, whose key is not kept, and what it signs
mkdir "$dir/tls" "$dir/server" "$dir/containers"
cd "$dir/tls"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days $valid_days \
    -subj "/CN=vendue" -keyout ca.key -out ca.pem 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=nats" \
    -keyout "$dir/server/server.key" -out server.csr 2>/dev/null
printf 'subjectAltName=DNS:nats,DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n' >server.ext
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days $valid_days \
    -extfile server.ext -out "$dir/server/server.pem" 2>/dev/null
rm -f ca.key ca.srl server.csr server.ext

cp "$dir/vendue-auth.conf" "$dir/server/"
cat "$root/docker/nats.conf" - >"$dir/server/nats.conf" <<'CONF'
tls { cert_file: "/etc/nats/server.pem", key_file: "/etc/nats/server.key" }
include "vendue-auth.conf"
CONF
for name in "${auctioneers[@]}" "${managers[@]}" "${cells[@]}"; do
    mkdir "$dir/containers/$name"
    cp "$dir/tls/ca.pem" "$dir/containers/$name/"
    cp "$dir/keys/$name.nk" "$dir/containers/$name/"
done
# a manager has a second key, for what it stores
for name in "${managers[@]}"; do cp "$dir/keys/$name-state.nk" "$dir/containers/$name/"; done
# auctioneers and managers run as nobody
if [ "$(id -u)" = 0 ]; then
    for name in "${auctioneers[@]}" "${managers[@]}"; do chown -R nobody "$dir/containers/$name"; done
else
    echo "make-secure: not root: let the user nobody read $dir/containers/{auctioneer,manager}-*" >&2
fi
