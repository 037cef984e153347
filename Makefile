# On a fresh Debian machine with git, make and Rust, two commands show everything:
#
#   make demo    two hosts exchange messages, beside TCP and UDP on the same wire, in one table, and
#                what it says in a few sentences (as root in a lab of namespaces, otherwise over loopback);
#                also as a report, out/compare.html
#   make test    every test of the workspace, the seeded simulation included

.PHONY: demo test build setup

demo: setup
	mkdir -p out
	cargo run --release --package tsumugi-cli -- compare --html out/compare.html

test: setup
	cargo xtask test

build: setup
	cargo build --release --workspace

# Installs what is missing, as root; otherwise says what is left out.
setup:
	@sh xtask/setup.sh
