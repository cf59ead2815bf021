#!/bin/sh
# Provides a real etcd for tests and benchmarks, with etcdutl for snapshots.
#
# Standard output: `ETCD_BIN=...` and `ETCDUTL_BIN=...`, for eval. Standard error: the version in use and how it was
# come by. In order:
#   1. $ETCD_BIN, whatever its version;
#   2. `etcd` on the path, if progress notifications of its version can be relied on (`good_row`);
#   3. built from its Go module, pinned in tools/etcd/go.mod, where `go` is there; kept in .cache/etcd/<version>/;
#   4. the project's release archive, if ETCD_ARCHIVE_SHA256 gives the checksum to hold it to;
#   5. the distribution's package: tests that need a good version are then skipped and say so.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/packages.sh"

say() { echo "etcd: $*" >&2; }

version_of() { "$1" --version 2>/dev/null | sed -n 's/^etcd Version: *//p'; }

# Whether a version's progress notifications prove delivery without conditions: 3.4.38 and later 3.4, 3.5.22 and
# later 3.5, 3.6.2 and later 3.6, 3.7.0 and later. A prerelease counts as unsafe.
good_row() {
    case "$1" in
    *[!0-9.]* | '') return 1 ;;
    esac
    major=$(echo "$1" | cut -d. -f1) minor=$(echo "$1" | cut -d. -f2) patch=$(echo "$1" | cut -d. -f3)
    [ -n "$major" ] && [ -n "$minor" ] && [ -n "$patch" ] || return 1
    case "$major.$minor" in
    3.4) [ "$patch" -ge 38 ] ;;
    3.5) [ "$patch" -ge 22 ] ;;
    3.6) [ "$patch" -ge 2 ] ;;
    *) [ "$major" -gt 3 ] || { [ "$major" = 3 ] && [ "$minor" -ge 7 ]; } ;;
    esac
}

# etcdutl for the etcd given, or nothing.
etcdutl_for() {
    if [ -n "${ETCDUTL_BIN:-}" ]; then echo "$ETCDUTL_BIN"; return; fi
    for candidate in "$(dirname "$1")/etcdutl" "$(command -v etcdutl || :)" "$cache/etcdutl"; do
        if [ -x "$candidate" ]; then echo "$candidate"; return; fi
    done
    if command -v go >/dev/null 2>&1 && build_etcdutl; then echo "$cache/etcdutl"; fi
}

# Answers, and ends.
use() {
    version=$(version_of "$1")
    [ -n "$version" ] || { say "$1 does not run, or is no etcd"; exit 1; }
    say "version $version, $2 ($1)"
    utl=$(etcdutl_for "$1")
    [ -n "$utl" ] || say "no etcdutl: tests that restore a snapshot are skipped"
    good_row "$version" || say "version $version is not one to rely on: tests that need a good one are skipped"
    printf "ETCD_BIN='%s'\nETCDUTL_BIN='%s'\n" "$1" "$utl"
    exit 0
}

# Built beside and moved: an interrupted build leaves nothing that looks whole.
build_etcdutl() {
    mkdir -p "$cache"
    (cd "$root/tools/etcd" && go build -trimpath -o "$cache/etcdutl.new" go.etcd.io/etcd/etcdutl/v3) >&2 &&
        mv "$cache/etcdutl.new" "$cache/etcdutl"
}

build() {
    build_etcdutl &&
        (cd "$root/tools/etcd" && go build -trimpath -o "$cache/etcd.new" .) >&2 &&
        mv "$cache/etcd.new" "$cache/etcd"
}

download() {
    archive="etcd-$pinned-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')"
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    curl -fsSL -o "$folder/etcd.tar.gz" \
        "https://github.com/etcd-io/etcd/releases/download/$pinned/$archive.tar.gz" || return 1
    if command -v sha256sum >/dev/null 2>&1; then sum=sha256sum; else sum="shasum -a 256"; fi
    echo "$ETCD_ARCHIVE_SHA256  $folder/etcd.tar.gz" | $sum -c - >&2 || return 1
    tar -xzf "$folder/etcd.tar.gz" -C "$folder"
    mkdir -p "$cache"
    mv "$folder/$archive/etcdutl" "$folder/$archive/etcd" "$cache/"
}

pinned=$(sed -n 's/^require go.etcd.io\/etcd\/server\/v3 //p' "$root/tools/etcd/go.mod")
cache="$root/.cache/etcd/$pinned"

[ -z "${ETCD_BIN:-}" ] || use "$ETCD_BIN" "from ETCD_BIN"
on_path=$(command -v etcd || :)
if [ -n "$on_path" ] && good_row "$(version_of "$on_path")"; then
    use "$on_path" "from the path"
fi
[ ! -x "$cache/etcd" ] || use "$cache/etcd" "built before"
if command -v go >/dev/null 2>&1; then
    say "building $pinned from its Go module, once"
    if build; then use "$cache/etcd" "built from its Go module"; fi
    say "the build failed, trying on"
fi
if [ -n "${ETCD_ARCHIVE_SHA256:-}" ] && command -v curl >/dev/null 2>&1; then
    if download; then use "$cache/etcd" "the release archive, checksum verified"; fi
    say "the release archive failed, trying on"
fi
if [ -z "$on_path" ]; then
    case "$(package_manager)" in
    apt-get) install_packages etcd-server etcd-client ;;
    *) install_packages etcd ;;
    esac || :
    on_path=$(command -v etcd || :)
fi
[ -z "$on_path" ] || use "$on_path" "the distribution's"
say "none found: install go, or set ETCD_BIN to an etcd of 3.6.2 or later"
exit 1
