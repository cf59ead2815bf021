#!/bin/sh
# Makes sure that protoc and the well-known protos are there, which the build of `proto/` needs.
set -eu
. "$(dirname "$0")/packages.sh"

# Whether protoc runs and finds the well-known protos: the only question the build will ask.
works() {
    compiler=${PROTOC:-protoc}
    command -v "$compiler" >/dev/null 2>&1 || return 1
    folder=$(mktemp -d)
    printf '%s\n' 'syntax = "proto3";' 'import "google/protobuf/timestamp.proto";' >"$folder/probe.proto"
    status=0
    "$compiler" --proto_path="$folder" --descriptor_set_out="$folder/probe.bin" "$folder/probe.proto" \
        >/dev/null 2>&1 || status=1
    rm -rf "$folder"
    return $status
}

works && exit 0

echo "protoc or its well-known protos are missing, installing them" >&2
case "$(package_manager)" in
apt-get) install_packages protobuf-compiler libprotobuf-dev ;;
dnf) install_packages protobuf-compiler protobuf-devel ;;
apk) install_packages protoc protobuf-dev ;;
*) install_packages protobuf ;;
esac

works || {
    echo "protoc still does not find google/protobuf/timestamp.proto: set PROTOC and PROTOC_INCLUDE" >&2
    exit 1
}
