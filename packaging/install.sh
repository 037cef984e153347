#!/bin/sh
# Puts what `make build` has built under PREFIX, or takes it away again: install.sh install|uninstall.
# A shell script, so that root needs no Rust for it.
#
#   PREFIX      where to [/usr/local]
#   DESTDIR     put before every path, for packages
#   SYSCONFDIR  where settings are [/etc, or PREFIX/etc for a PREFIX that is not the system's]
#   BUILT       where cargo has left what it built [target/release]

set -eu

PREFIX=${PREFIX:-/usr/local}
DESTDIR=${DESTDIR:-}
case $PREFIX in
/*) ;;
*) echo "install: PREFIX must begin with /, and is '$PREFIX'" >&2; exit 2 ;;
esac
case $PREFIX in
/usr | /usr/local) default=/etc ;;
*) default=$PREFIX/etc ;;
esac
SYSCONFDIR=${SYSCONFDIR:-$default}
BUILT=${BUILT:-${CARGO_TARGET_DIR:-target}/release}
here=$(dirname "$0")
root=$DESTDIR$PREFIX

# What is installed, but for the manual pages and the settings.
list() {
    cat <<LIST
bin/tsumugi
bin/tsumugi-mpiexec
lib/tsumugi/libtsumugi-fi.so
lib/tsumugi/libtsumugi-pmpi.so
lib/systemd/system/tsumugi-up@.service
lib/udev/rules.d/80-tsumugi.rules
share/bash-completion/completions/tsumugi
share/fish/vendor_completions.d/tsumugi.fish
share/zsh/site-functions/_tsumugi
share/tsumugi/tsumugi.lua
share/tsumugi/slurm/prolog
share/tsumugi/slurm/epilog
LIST
}

put() { # MODE FROM TO
    mkdir -p "$(dirname "$root/$3")"
    install -m "$1" "$2" "$root/$3"
}

# The paths of this installation in a file that names them.
put_with_paths() { # FROM TO
    mkdir -p "$(dirname "$root/$2")"
    sed -e "s|@BINDIR@|$PREFIX/bin|g" -e "s|@SYSCONFDIR@|$SYSCONFDIR|g" "$1" >"$root/$2"
    chmod 644 "$root/$2"
}

install_all() {
    for file in tsumugi tsumugi-mpiexec libtsumugi_fi.so libtsumugi_pmpi.so; do
        if [ ! -e "$BUILT/$file" ]; then
            echo "install: there is no $BUILT/$file: run \`make build\` first, as the user who has Rust" >&2
            exit 1
        fi
    done
    # Taken away first: what runs keeps the file that it has.
    rm -f "$root/bin/tsumugi" "$root/bin/tsumugi-mpiexec" "$root/lib/tsumugi/libtsumugi-fi.so" \
        "$root/lib/tsumugi/libtsumugi-pmpi.so"
    put 755 "$BUILT/tsumugi" bin/tsumugi
    put 755 "$BUILT/tsumugi-mpiexec" bin/tsumugi-mpiexec
    put 644 "$BUILT/libtsumugi_fi.so" lib/tsumugi/libtsumugi-fi.so
    put 644 "$BUILT/libtsumugi_pmpi.so" lib/tsumugi/libtsumugi-pmpi.so
    put_with_paths "$here/tsumugi-up@.service" lib/systemd/system/tsumugi-up@.service
    put_with_paths "$here/80-tsumugi.rules" lib/udev/rules.d/80-tsumugi.rules
    put 644 "$here/../tools/wireshark/tsumugi.lua" share/tsumugi/tsumugi.lua
    for script in prolog epilog; do
        put_with_paths "$here/slurm/$script" share/tsumugi/slurm/$script
    done
    mkdir -p "$root/share/man/man1" "$root/share/bash-completion/completions" "$root/share/fish/vendor_completions.d" \
        "$root/share/zsh/site-functions"
    "$BUILT/tsumugi" man-pages "$root/share/man/man1"
    "$BUILT/tsumugi" completions bash >"$root/share/bash-completion/completions/tsumugi"
    "$BUILT/tsumugi" completions fish >"$root/share/fish/vendor_completions.d/tsumugi.fish"
    "$BUILT/tsumugi" completions zsh >"$root/share/zsh/site-functions/_tsumugi"
    settings=$DESTDIR$SYSCONFDIR/tsumugi/up.toml
    mkdir -p "$(dirname "$settings")"
    # Somebody's settings stay.
    if [ ! -e "$settings" ]; then
        install -m 644 "$here/up.toml" "$settings"
    fi
    if [ -z "$DESTDIR" ]; then
        echo "installed: $PREFIX/bin/tsumugi and tsumugi-mpiexec, the provider in $PREFIX/lib/tsumugi, the settings of NICs in $settings"
        case ":$PATH:" in
        *":$PREFIX/bin:"*) ;;
        *) echo "$PREFIX/bin is not in PATH: export PATH=$PREFIX/bin:\$PATH" ;;
        esac
    fi
}

uninstall_all() {
    list | while IFS= read -r file; do
        rm -f "$root/$file"
    done
    rm -f "$root/share/man/man1/tsumugi.1" "$root/share/man/man1/tsumugi-"*.1
    rmdir "$root/lib/tsumugi" "$root/share/tsumugi/slurm" "$root/share/tsumugi" 2>/dev/null || true
    settings=$DESTDIR$SYSCONFDIR/tsumugi/up.toml
    if cmp -s "$settings" "$here/up.toml"; then
        rm -f "$settings"
        rmdir "$(dirname "$settings")" 2>/dev/null || true
    elif [ -e "$settings" ]; then
        echo "left: $settings, which was changed"
    fi
}

case ${1:-} in
install) install_all ;;
uninstall) uninstall_all ;;
*) echo "usage: [PREFIX=…] [DESTDIR=…] install.sh install|uninstall" >&2; exit 2 ;;
esac
