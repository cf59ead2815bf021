#!/bin/sh
# Provides the etcd releases that `make test-etcd-matrix` runs against, each in .cache/etcd/matrix/<version>/ with its
# etcdutl. They lie apart from the one of tools/etcd.sh, so that tests run alone go on with the pinned release.
#
#   tools/etcd-matrix.sh [MINOR...]      3.4 3.5 3.6 3.7 without arguments
#
# 3.5 and later are built from their Go modules, pinned in tools/etcd/<minor>/go.mod. No 3.4 that can be relied on is
# to be had as a module, so 3.4 is the distribution's package, unpacked and not installed, if it has one: an unsafe
# row, which is what it is there for. What cannot be provided is named, and its cells say "not run"; that is no error.
# Standard error only.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/packages.sh"
cache="$root/.cache/etcd/matrix"

say() { echo "etcd matrix: $*" >&2; }

# Built beside and moved, etcdutl first: an interrupted build leaves nothing that looks whole.
build() {
    module="$root/tools/etcd/$1"
    version=$(sed -n 's|^.*go.etcd.io/etcd/server/v3 \(v[0-9.]*\).*|\1|p' "$module/go.mod")
    if [ -x "$cache/$version/etcd" ]; then say "$version is there"; return; fi
    command -v go >/dev/null 2>&1 || { say "$version needs go to be built, and there is none"; return; }
    say "building $version from its Go module, once"
    mkdir -p "$cache/$version"
    for each in etcdutl:go.etcd.io/etcd/etcdutl/v3 etcd:go.etcd.io/etcd/server/v3; do
        file="$cache/$version/${each%%:*}"
        (cd "$module" && go build -trimpath -o "$file.new" "${each#*:}") >&2 && mv "$file.new" "$file" ||
            { say "$version did not build"; return; }
    done
}

# The distribution's 3.4, without installing it: nothing is started, nothing is left behind.
unpack() {
    for there in "$cache"/v3.4.*/etcd; do
        if [ -x "$there" ]; then say "$(basename "$(dirname "$there")") is there"; return; fi
    done
    [ "$(package_manager)" = apt-get ] || { say "3.4 comes from Debian's package, and this is no Debian"; return; }
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    download="apt-get download etcd-server"
    (cd "$folder" && { $download || { as_root apt-get update && $download; }; }) >&2 ||
        { say "the distribution has no etcd-server"; return; }
    dpkg -x "$folder"/etcd-server_*.deb "$folder/unpacked"
    version=v$("$folder/unpacked/usr/bin/etcd" --version | sed -n 's/^etcd Version: *//p')
    case "$version" in
    v3.4.*) mkdir -p "$cache/$version" && mv "$folder/unpacked/usr/bin/etcd" "$cache/$version/etcd" ;;
    *) say "the distribution's etcd is $version, no 3.4" ;;
    esac
}

[ $# -gt 0 ] || set -- 3.4 3.5 3.6 3.7
for minor in "$@"; do
    if [ "$minor" = 3.4 ]; then
        unpack
    elif [ -f "$root/tools/etcd/$minor/go.mod" ]; then
        build "$minor"
    else
        say "$minor is not known: there is no tools/etcd/$minor/go.mod"
        exit 1
    fi
done
