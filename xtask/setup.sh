#!/bin/sh
# Installs what building, testing and the demo need on Debian. A shell script, because without a C compiler
# (Rust's linker) nothing else of the project can be built. Without root it says what is left out and goes on;
# it fails only if nothing at all can be built.

set -u
PATH="$PATH:/usr/sbin:/sbin"

# The program or library, the packages that bring it, and what is left out without it.
needed() {
    cat <<'LIST'
cc       gcc libc6-dev    building anything at all
ip       iproute2         labs, and all tests and figures that need them
tc       iproute2         labs with a rate limit
ethtool  ethtool          labs without offloads
nft      nftables         labs that lose packets
clang    clang            the XDP receive path
libbpf   libbpf-dev       the XDP receive path
tshark   tshark           the test of the Wireshark dissector
qemu     qemu-system-x86  the tests on other kernels, on an emulated machine
fabric   libfabric-dev    the tests of the libfabric provider
venv     python3-venv     the tests of the MPIs, which come from PyPI
valgrind valgrind         counting the instructions that a message takes
LIST
}

# Whether a program is installed; of a library, its header.
have() {
    case $1 in
    libbpf) [ -e /usr/include/bpf/bpf_helpers.h ] ;;
    fabric) [ -e /usr/include/rdma/fabric.h ] ;;
    venv) python3 -c 'import ensurepip, venv' >/dev/null 2>&1 ;;
    # What is built on another architecture would not run on that machine.
    qemu) [ "$(uname -m)" != x86_64 ] || command -v qemu-system-x86_64 >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

# The lines of what is not installed.
missing() {
    needed | while IFS= read -r line; do
        have "${line%% *}" || printf '%s\n' "$line"
    done
}

packages() {
    missing | cut -c10-26 | tr -s ' ' '\n' | sed '/^$/d' | sort -u | tr '\n' ' '
}

list=$(packages)
if [ -n "$list" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    # Without this, Wireshark's package asks whether ordinary users may capture.
    export DEBIAN_FRONTEND=noninteractive
    echo "setup: installing $list" >&2
    # A fresh machine has no package lists, an old one has stale ones. The lists are fetched only if needed.
    # shellcheck disable=SC2086 # one word per package
    { apt-get install -qq -y --no-install-recommends $list ||
        { apt-get update -qq && apt-get install -qq -y --no-install-recommends $list; }; } >&2 ||
        echo "setup: apt-get failed, see above" >&2
fi

if [ -n "$(missing)" ]; then
    {
        echo "setup: not installed, so this is left out:"
        missing | while IFS= read -r line; do
            printf '  %-9s %s\n' "${line%% *}" "$(printf '%s' "$line" | cut -c27-)"
        done
        echo "setup: to install it: sudo apt-get install $(packages)"
    } >&2
fi
if ! command -v cc >/dev/null 2>&1; then
    exit 1
fi
if ! command -v cargo >/dev/null 2>&1; then
    if [ -n "${SUDO_USER:-}" ]; then
        echo "setup: there is no cargo in root's PATH: build as $SUDO_USER" >&2
    else
        echo "setup: Rust is not installed (Debian's is too old): see https://rustup.rs" >&2
        exit 1
    fi
fi
