//! What becomes of each command that the pages show.

/// What becomes of a command.
pub(crate) enum What {
    /// It is typed in a node, with these words behind it so that it does not take long; it ends well, having said all of the latter.
    Typed(&'static str, &'static [&'static str]),
    /// As typed, on the machine itself instead of in a node.
    Here(&'static str, &'static [&'static str]),
    /// As typed, on a host whose NICs have no addresses.
    Between(&'static str, &'static [&'static str]),
    /// It is not run, and why.
    Not(&'static str),
}
use What::{Between, Here, Not, Typed};

const SHORT: &str = "--rounds 1 --time 0.02";
const PACKAGES: &str =
    "builds what is released; tests/install.rs installs by packaging/install.sh, and a wheel";
const SLURM: &str = "needs Slurm's daemons; packaging/slurm is read by tests/install.rs";
const IN_A_LAB: &str = "takes seconds; tests/labs.rs runs it";
const NIGHTLY: &str = "needs a nightly toolchain and cargo-fuzz; `cargo xtask fuzz` builds the targets";
const MPI: &str = "takes a minute; tests/mpi.rs runs it";
const SIMULATION: &str = "takes minutes; the tests of tsumugi-sim, and `cargo xtask defects` in CI, run it";
const TOP: &str = "draws on a terminal until a key is typed; tests/status.rs runs it";
const BONDING: &str = "takes minutes; tests/eval.rs runs it";

/// Every command in a block of a page, by that page, in the order in which they are shown.
pub(crate) const TABLE: &[(&str, &[(&str, What)])] = &[
    (
        "README.md",
        &[
            ("make demo", Not("builds what is released, and measures for minutes")),
            ("make test", Not("runs this")),
            ("cargo install --path crates/tsumugi-cli", Not("builds what is released, which takes minutes")),
            ("make build && sudo make install", Not(PACKAGES)),
            ("make build && make install PREFIX=$HOME/tsumugi", Not(PACKAGES)),
            ("make deb", Not(PACKAGES)),
            ("make wheel", Not(PACKAGES)),
            ("cargo new ../hello", Here("", &[])),
            (
                "cargo add --manifest-path ../hello/Cargo.toml tsumugi --path crates/tsumugi",
                Here("--offline", &["Adding tsumugi"]),
            ),
            ("cargo run --example hello &", Typed("", &[])),
            ("cargo run --example hello 127.0.0.1", Typed("", &["peer 0: a strong everyday cloth"])),
            ("cargo build --example hello", Not("cargo has built it beside this test")),
            ("sudo tsumugi lab up", Here("", &["2 nodes"])),
            ("sudo tsumugi lab exec n1 -- target/debug/examples/hello &", Here("", &[])),
            (
                "sudo tsumugi lab exec n0 -- target/debug/examples/hello n1",
                Here("", &["a strong everyday cloth"]),
            ),
            ("sudo tsumugi lab down", Here("", &[])),
            ("tsumugi doctor", Typed("", &["kernel"])),
            ("tsumugi top", Not(TOP)),
            ("tsumugi doctor --paths HOST", Typed("", &["nic0", "nic1"])),
            ("tsumugi lab up --nodes 2", Here("", &["2 nodes"])),
            ("tsumugi lab exec n1 -- tsumugi perf serve &", Here("", &["port"])),
            ("tsumugi lab exec n0 -- tsumugi perf latency n1 --size 8..64K", Here(SHORT, &["64 KiB", "p50"])),
            ("tsumugi compare --html report.html", Not("takes minutes; tests/compare.rs runs it")),
            ("tsumugi eval bonding --html b.html", Not(BONDING)),
            ("tsumugi eval mpi --quick", Not(MPI)),
            ("sudo tsumugi eval collectives", Not("takes a minute; tests/collectives.rs runs it")),
            (
                "tsumugi perf models n1",
                Typed("--size 64 --rounds 1 --time 0.02", &["one way", "overhead", "bandwidth"]),
            ),
            ("tsumugi perf azc n1", Typed(SHORT, &["rendezvous"])),
            ("sudo tsumugi perf translate", Not(IN_A_LAB)),
            ("sudo tsumugi perf all-to-all", Not(IN_A_LAB)),
            ("sudo tsumugi perf forwarding", Not(IN_A_LAB)),
            ("sudo tsumugi perf barrier", Not(IN_A_LAB)),
            ("sudo tsumugi perf multicast", Not(IN_A_LAB)),
            ("sudo tsumugi perf collectives", Not(IN_A_LAB)),
            ("tsumugi perf costs", Not("takes seconds; tests/costs.rs runs it")),
            ("sudo tsumugi up eth1", Typed("", &["nic0"])),
            (
                "sudo tsumugi switch up eth1 eth2 eth3",
                Between("; tsumugi switch down", &["nic0", "nic1", "nic2"]),
            ),
        ],
    ),
    (
        "docs/bonding.md",
        &[
            ("sudo tsumugi eval bonding --html bonding.html", Not(BONDING)),
            ("sudo tsumugi eval bonding --case 2x4@100M,uneven", Not(BONDING)),
            ("tsumugi eval bonding --simulated", Not(BONDING)),
        ],
    ),
    (
        "docs/cluster.md",
        &[
            ("make wheel", Not(PACKAGES)),
            ("python3 -m venv /shared/mpi", Not(PACKAGES)),
            ("/shared/mpi/bin/pip install mpich target/wheel/tsumugi-*.whl", Not(PACKAGES)),
            ("make build && sudo make install PREFIX=/usr/local", Not(PACKAGES)),
            ("make deb && sudo apt install ./target/debian/tsumugi_*.deb", Not(PACKAGES)),
            ("ssh n0 /shared/mpi/bin/tsumugi doctor", Typed("", &["kernel"])),
            ("cat > hosts <<END\nn0\nn1\nEND", Typed("", &[])),
            ("/shared/mpi/bin/mpicc hello.c -o hello", Typed("", &[])),
            (
                "/shared/mpi/bin/tsumugi-mpiexec -f hosts -n 2 ./hello",
                Typed("", &["rank 0 of 2", "rank 1 of 2"]),
            ),
            (
                "/shared/mpi/bin/tsumugi-mpiexec --hostfile hosts -n 2 ./hello",
                Not("Open MPI's; tests/mpiexec.rs runs it"),
            ),
            (
                "/shared/mpi/bin/tsumugi-mpiexec --over tcp -f hosts -n 2 ./program",
                Not("tests/mpiexec.rs runs it"),
            ),
            (
                "/shared/mpi/bin/tsumugi-mpiexec            -f hosts -n 2 ./program",
                Not("typed above, with ./hello"),
            ),
            ("tsumugi doctor --paths n1", Typed("", &["nic0", "nic1"])),
            ("FI_TSUMUGI_NETWORKS='10.77.0.0/24' tsumugi-mpiexec …", Not("without the job's arguments")),
            ("FI_TSUMUGI_NETWORKS='!eth0,!wg*' tsumugi-mpiexec …", Not("without the job's arguments")),
            ("sudo tsumugi up eth1 --group mpi --mode 660", Typed("", &["nic0"])),
            ("tsumugi status", Typed("", &["nic0"])),
            ("sudo tsumugi down eth1", Typed("", &[])),
            (
                "sudo systemctl restart tsumugi-up@eth1",
                Not("needs systemd; the settings above are given to `up --config`"),
            ),
            ("sudo tsumugi switch up eth1 eth2 eth3", Between("", &["nic0"])),
            ("sudo tsumugi switch status --addresses", Between("", &["nic0", "nic1", "nic2"])),
            ("sudo tsumugi switch down", Between("", &[])),
            ("export PATH=/shared/mpi/bin:$PATH", Not(SLURM)),
            ("tsumugi-mpiexec ./program", Not(SLURM)),
            ("eval \"$(tsumugi-mpiexec --export)\"", Typed("; echo $FI_PROVIDER", &["tsumugi"])),
            ("srun --mpi=pmi2 -N 2 -n 2 ./program", Not(SLURM)),
            ("PMIX_MCA_psec=native srun --mpi=pmix -N 2 -n 2 ./program", Not(SLURM)),
            (
                "install -m 755 /usr/local/share/tsumugi/slurm/prolog /usr/local/share/tsumugi/slurm/epilog /etc/slurm/",
                Not(SLURM),
            ),
            (
                "jq '.syscalls |= (map(.names -= [\"bpf\"]) | map(select(.names != [])) + [{names: [\"bpf\"], action: \"SCMP_ACT_ALLOW\"}])' \\\n\
                 /usr/share/containers/seccomp.json > seccomp-bpf.json",
                Not("needs podman's profile"),
            ),
            ("tsumugi top", Not(TOP)),
            ("tsumugi status", Typed("", &["perf serve: port 7411", "limit: "])),
            ("tsumugi status --watch 2 --json", Not("goes on until Ctrl-C; tests/status.rs runs it")),
            (
                "tsumugi status --prometheus > /var/lib/prometheus/node-exporter/tsumugi.prom",
                Not("needs Prometheus' folder; tests/status.rs runs it"),
            ),
        ],
    ),
    (
        "docs/fuzzing.md",
        &[
            ("cargo test -p tsumugi-wire --test mutation -- --nocapture", Not("CI runs it with all tests")),
            ("cargo run -p tsumugi-wire --example fuzz_seeds", Not(NIGHTLY)),
            ("cargo +nightly fuzz run packet -- -max_total_time=60 -max_len=9100", Not(NIGHTLY)),
            ("cargo +nightly fuzz run sack   -- -max_total_time=60", Not(NIGHTLY)),
            ("cargo +nightly fuzz run offer  -- -max_total_time=60", Not(NIGHTLY)),
            ("cargo +nightly fuzz run multicast -- -max_total_time=60", Not(NIGHTLY)),
            ("cargo +nightly fuzz run endpoint -- -max_total_time=60 -max_len=4096", Not(NIGHTLY)),
        ],
    ),
    (
        "docs/mpi.md",
        &[
            ("cargo build --release", Not("builds what is released")),
            ("sudo target/release/tsumugi lab mpiexec -- ./hello", Here("", &["rank 0 of 2", "rank 1 of 2"])),
            ("sudo target/release/tsumugi lab mpiexec --mpi openmpi -n 8 --nodes 4 -- ./hello", Not(MPI)),
            ("sudo target/release/tsumugi lab mpiexec --over tcp -- ./hello", Not(MPI)),
            ("sudo target/release/tsumugi eval mpi --short", Not(MPI)),
            ("sudo target/release/tsumugi eval mpi --html mpi.html", Not(MPI)),
            ("make -C bench CC=$(target/release/tsumugi lab mpiexec --where)/mpicc", Not(MPI)),
            ("target/release/tsumugi lab mpiexec --where", Here("", &["bin"])),
            ("tsumugi-mpiexec --collectives -n 8 ./program", Not("tests/collectives.rs runs it")),
            ("sudo target/release/tsumugi eval collectives", Not("tests/collectives.rs runs it")),
            (
                "tsumugi lab up --name fab && ln -s /run/tsumugi/lab/fab/ssh ~/bin/ssh",
                Not("needs libfabric's fabtests; the lab's ssh is typed for docs/cluster.md"),
            ),
            (
                "runfabtests.sh -vv -t quick -E FI_PROVIDER_PATH=$FI_PROVIDER_PATH tsumugi 10.77.0.1 10.77.0.2",
                Not("needs libfabric's fabtests"),
            ),
        ],
    ),
    (
        "docs/simulation.md",
        &[
            ("cargo test -p tsumugi-sim --test seeds", Not("CI runs it with all tests")),
            ("cargo run --release -p tsumugi-sim -- --seeds 0..1000000 --jobs 2", Not(SIMULATION)),
            ("cargo run --release -p tsumugi-sim -- --seed 7380 --verbose", Not(SIMULATION)),
            ("cargo run --release -p tsumugi-sim -- --models --seeds 0..100000", Not(SIMULATION)),
            ("cargo xtask defects [--only NAME|--controls]", Not(SIMULATION)),
            (
                "cargo run --release -p tsumugi-sim --features defects -- --defect xoff-ignored",
                Not(SIMULATION),
            ),
            ("cargo run --release -p tsumugi-sim -- --defects", Not(SIMULATION)),
        ],
    ),
    (
        "docs/users.md",
        &[(
            "FI_LOG_LEVEL=info FI_LOG_PROV=tsumugi tsumugi-mpiexec -hosts n0,n1 -n 2 ./program 2>&1 | grep 'receive path'",
            Typed("", &["receive path socket"]),
        )],
    ),
];
