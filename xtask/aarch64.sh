#!/bin/sh
# Runs a program of aarch64 under qemu-user; cargo calls it for each test program of `cargo xtask aarch64`.
#
# Tests start programs of their own, by themselves or through sh and unshare. For the kernel to run those, too, qemu-user is made
# their interpreter (binfmt_misc), in a user namespace that ends with the test program (Linux 6.7), so that nothing of it is
# left on the machine. In another one inside it the tests are an ordinary user whose files are the caller's.

set -eu
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu

case ${1-} in
--inside)
    shift
    folder=/proc/sys/fs/binfmt_misc
    if mount -t binfmt_misc none "$folder" 2>/dev/null && [ -w "$folder/register" ]; then
        # Of an ELF header for AArch64 (Linux: Documentation/admin-guide/binfmt-misc.rst): class and byte order, type (EXEC
        # or DYN), machine. P: the program sees its own name. F: the interpreter is opened now.
        magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
        mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
        printf '%s' ":tsumugi-aarch64:M::$magic:$mask:$(command -v qemu-aarch64):PF" >"$folder/register"
    elif [ ! -e "$folder/qemu-aarch64" ]; then
        echo "aarch64: the kernel cannot be told to start programs of aarch64 by qemu-user: that needs Linux 6.7, or the" >&2
        echo "aarch64: package qemu-user-binfmt, which tells it for the whole machine" >&2
        exit 1
    fi
    exec unshare --user --map-user=1000 --map-group=1000 -- "$@"
    ;;
*)
    exec unshare --user --map-root-user --mount -- sh "$0" --inside "$@"
    ;;
esac
