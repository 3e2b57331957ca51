#!/bin/sh
# Builds what `tidings bench` compares with, into target/peers, where it looks for it. For `push`: Pushy's client and
# benchmark server (Java), apns2 and gorush (Go); for `fanout`, `publish` and `storm`: Centrifugo 5 and 6 (Go).
# Versions are pinned in java/pom.xml, go/peers, centrifugo and centrifugo6. Half a minute for Java, some minutes for gorush
# and each Centrifugo. Needs JDK 17, Maven and Go 1.26 or newer; whatever of these is missing is said and left out.
set -eu
cd "$(dirname "$0")"
built=$(cd .. && pwd)/target/peers
mkdir -p "$built"
missing=0

if command -v mvn >/dev/null && command -v javac >/dev/null; then
    (cd java && nice -n 19 mvn --batch-mode --quiet -Pbench "-Dmaven.repo.local=$built/maven" \
        compiler:compile dependency:copy-dependencies)
else
    echo "Pushy is left out: JDK 17 and Maven are needed (Debian: openjdk-17-jdk-headless maven)" >&2
    missing=1
fi

if command -v go >/dev/null; then
    # Without -modcacherw the downloaded modules are read-only, and target could not be removed.
    build() {
        (cd "$1" && shift && GOMODCACHE="$built/go/modules" GOCACHE="$built/go/cache" GOTOOLCHAIN=local CGO_ENABLED=0 \
            nice -n 19 go build -modcacherw -buildvcs=false -trimpath -ldflags "-s -w" -o "$built/go/bin/$name" "$@")
    }
    name= build go/peers ./apns2 ./gorush
    name= build centrifugo github.com/centrifugal/centrifugo/v5
    name=centrifugo6 build centrifugo6 github.com/centrifugal/centrifugo/v6 # Its own name is that of the older one.
else
    echo "apns2, gorush and Centrifugo are left out: Go is needed" >&2
    missing=1
fi
exit $missing
