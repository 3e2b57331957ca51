#!/bin/sh
# Starts what compose.yaml starts, without containers and without the load balancer: three NATS servers and three servers of Tidings,
# from the same configuration files, at the ports 8001 to 8003 of this machine. Ctrl-C ends them.
#
#   ops/cluster/run.sh [FOLDER]        data and logs [default: a temporary folder, which is removed]
#
# Needs nats-server (2.15 or later), tidings, and setsid of util-linux, with which Ctrl-C reaches this script alone. NATS_SERVER, TIDINGS: the programs, if they are not on the path.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
nats_server=${NATS_SERVER:-nats-server}
tidings=${TIDINGS:-tidings}
first_port=${FIRST_PORT:-8001}
nats_port=${NATS_PORT:-14222}
folder=${1:-}
servers='' brokers='' temporary=''
end() {
    for group in "$servers" "$brokers"; do # The servers first, so that they can give the lease back.
        kill $group 2>/dev/null || true
        wait $group 2>/dev/null || true
    done
    if [ -n "$temporary" ]; then rm -rf "$temporary"; fi
}
trap end EXIT
trap 'exit 130' INT TERM
if [ -z "$folder" ]; then
    temporary=$(mktemp -d)
    folder=$temporary
fi
mkdir -p "$folder"
cd "$folder"
folder=$(pwd)

urls='' routes=''
for number in 0 1 2; do
    urls="$urls\"nats://127.0.0.1:$((nats_port + number))\","
    routes="$routes\"nats://127.0.0.1:$((nats_port + 2000 + number))\","
done
for number in 0 1 2; do
    mkdir -p "nats-$number"
    # The same file, with the addresses of one machine.
    sed -e "s|listen: \"0.0.0.0:4222\"|listen: \"127.0.0.1:$((nats_port + number))\"|" \
        -e "s|listen: \"0.0.0.0:6222\"|listen: \"127.0.0.1:$((nats_port + 2000 + number))\"|" \
        -e "s|routes: .*|routes: [$routes]|" "$here/nats.conf" > "nats-$number/nats.conf"
    NAME="nats-$number" DATA="$folder/nats-$number/data" \
        setsid "$nats_server" --config "nats-$number/nats.conf" > "nats-$number/log" 2>&1 &
    brokers="$brokers $!"
done
number=0
for name in a b c; do
    address="127.0.0.1:$((first_port + number))"
    mkdir -p "tidings-$name"
    (
        cd "tidings-$name"
        export TIDINGS_HTTP__LISTEN="$address" TIDINGS_CLUSTER__NODE="$name" TIDINGS_CLUSTER__ADDRESS="http://$address"
        export TIDINGS_CLUSTER__SERVERS="[$urls]"
        exec setsid "$tidings" serve --config "$here/tidings.toml"
    ) > "tidings-$name/log" 2>&1 &
    servers="$servers $!"
    number=$((number + 1))
done
echo "servers at http://127.0.0.1:$first_port to $((first_port + 2)); data and logs in $folder (Ctrl-C ends them)"
wait
