# On a fresh Debian machine with git, make and Rust, two commands show everything:
#
#   make demo    two hosts exchange messages, beside TCP and UDP on the same wire, in one table, and
#                what it says in a few sentences (as root in a lab of namespaces, otherwise over loopback);
#                also as a report, out/compare.html; then an MPI program over TCP and over Tsumugi, in one short table
#   make test    every test of the workspace, the seeded simulation included
#
# and two put it on a machine:
#
#   make build                       as the user who has Rust
#   sudo make install PREFIX=…       commands, provider, manual pages, completions and systemd units; /usr/local without PREFIX.
#                                    `make uninstall` takes them away again; `make deb`, `make wheel` make packages of them

.PHONY: demo test build install uninstall deb wheel setup

PREFIX ?= /usr/local

demo: setup
	mkdir -p out
	cargo run --release --package tsumugi-cli -- compare --html out/compare.html
	cargo build --release --package tsumugi-ofi
	@if [ "$$(id -u)" = 0 ]; then cargo run --release --package tsumugi-cli -- eval mpi --short; \
	else echo "left out: an MPI program over TCP and over Tsumugi, for which only root can make nodes: sudo make demo"; fi

test: setup
	cargo xtask test

build: setup
	cargo build --release --workspace

install:
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" sh packaging/install.sh install

uninstall:
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" sh packaging/install.sh uninstall

deb: build
	cargo xtask deb

wheel: setup
	cargo xtask wheel

# Installs what is missing, as root; otherwise says what is left out.
setup:
	@sh xtask/setup.sh
