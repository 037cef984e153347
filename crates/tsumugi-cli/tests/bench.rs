//! The MPI benchmarks of `bench/` across the nodes of a lab, over the provider: MPICH and Open MPI, as PyPI has them.

#[path = "common/mpi.rs"]
mod mpi;

use mpi::{ALONE, Mpi};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::PoisonError;
use tempfile::TempDir;
use tsumugi_lab::testing::as_root;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench");

/// The benchmarks, built with the compiler of an MPI.
struct Benchmarks {
    mpi: Mpi,
    folder: TempDir,
}

impl Benchmarks {
    /// What both MPIs build without a warning.
    fn all() -> impl Iterator<Item = Benchmarks> {
        Mpi::all().into_iter().map(|mpi| Benchmarks::build(mpi, Path::new(SOURCES)))
    }

    fn build(mpi: Mpi, sources: &Path) -> Benchmarks {
        let folder = tempfile::tempdir_in(&mpi.built).unwrap();
        let mut make = Command::new("make");
        make.args(["-s", "-j2", "CFLAGS=-O2 -Wall -Wextra -Werror", "-C"]).arg(sources);
        make.arg(format!("CC={}", mpi.programs.join("mpicc").display()));
        make.arg(format!("OUT={}", folder.path().display()));
        let output = make.output().unwrap();
        assert!(output.status.success(), "{}: {}", mpi.name, String::from_utf8_lossy(&output.stderr));
        Benchmarks { mpi, folder }
    }

    fn program(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a benchmark on a number of ranks, each on a node of its own, and returns its exit code and what it said.
    fn run(&self, ranks: usize, name: &str, arguments: &str) -> (Option<i32>, String) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let program = self.program(name);
        let program: Vec<&str> =
            [program.to_str().unwrap()].into_iter().chain(arguments.split_whitespace()).collect();
        self.mpi.run_beside_others(&["--nodes", &ranks.to_string()], &[], &program)
    }

    /// Runs a benchmark that must end well, and returns the figures that it tells, with their sizes.
    fn figures(&self, ranks: usize, name: &str, arguments: &str) -> Vec<(String, u64)> {
        let (code, said) = self.run(ranks, name, &format!("{arguments} --json"));
        assert_eq!(code, Some(0), "{}, {name} {arguments}: {said}", self.mpi.name);
        let figure = |line: &str| {
            let told: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(told["ranks"].as_u64(), Some(ranks as u64), "{line}");
            let value = told["value"].as_f64().unwrap();
            match told["unit"].as_str().unwrap() {
                "ratio" => assert!((0.0..=1.0).contains(&value), "{line}"),
                "us" | "MB/s" | "messages/s" | "Mop/s" => assert!(value > 0.0, "{line}"),
                other => panic!("{other} is no unit: {line}"),
            }
            (told["figure"].as_str().unwrap().to_owned(), told["size_bytes"].as_u64().unwrap())
        };
        // An MPI's launcher may have something to say, too.
        said.lines().filter(|line| line.starts_with('{')).map(figure).collect()
    }
}

#[test]
fn integers_are_sorted_by_any_number_of_ranks() {
    let Some(_watch) = as_root("integers_are_sorted_by_any_number_of_ranks", None) else { return };
    for benchmarks in Benchmarks::all() {
        for ranks in 1..=4 {
            assert_eq!(benchmarks.figures(ranks, "is", "--class S"), [("is_S".to_owned(), 4 << 16)]);
        }
        let program = benchmarks.program("is");
        // Two ranks on each node; the summary for people.
        let options = ["-n", "4", "--nodes", "2"];
        let (well, said) = benchmarks.mpi.run(&options, &[], &[program.to_str().unwrap(), "--no-pin"]);
        let verified =
            said.lines().any(|line| line.contains("Verification") && line.ends_with(" SUCCESSFUL"));
        assert!(well && verified, "{}: {said}", benchmarks.mpi.name);
    }
}

#[test]
fn integers_that_are_sorted_wrong_are_noticed() {
    let test = "integers_that_are_sorted_wrong_are_noticed";
    let Some(_watch) = as_root(test, None) else { return };
    let Some(mut mpi) = Mpi::installed("mpich") else { return };
    for (file, right, wrong) in [
        // One key should have another rank.
        ("is_classes.h", "{0, 18, 346,", "{0, 19, 346,"),
        // A key changes on its way, and the ranks fit to what it has become.
        ("is.c", "    rank_keys();\n    verify", "    received[0] ^= 1;\n    rank_keys();\n    verify"),
        // The keys stay in the order in which they came.
        ("is.c", "sorted[ranks_of[received[at] - low]++]", "sorted[at]"),
    ] {
        let sources = tempfile::tempdir_in(&mpi.built).unwrap();
        for entry in std::fs::read_dir(SOURCES).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), sources.path().join(entry.file_name())).unwrap();
            }
        }
        let path = sources.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(right).count(), 1, "{file}: {right}");
        std::fs::write(&path, text.replace(right, wrong)).unwrap();
        let benchmarks = Benchmarks::build(mpi, sources.path());
        let (code, said) = benchmarks.run(2, "is", "--class S");
        assert!(code == Some(1) && said.contains("UNSUCCESSFUL"), "{code:?}, {wrong}: {said}");
        mpi = benchmarks.mpi;
    }
}

#[test]
fn each_benchmark_tells_its_figures() {
    let Some(_watch) = as_root("each_benchmark_tells_its_figures", None) else { return };
    let collectives = "bcast reduce allreduce gather allgather scatter alltoall";
    for benchmarks in Benchmarks::all() {
        for (ranks, name, arguments, figures) in [
            (2, "latency", "", "latency"),
            (2, "latency", "--udp", "udp_latency"),
            (2, "bandwidth", "", "bandwidth"),
            (2, "bandwidth", "--both-ways --window 5", "bandwidth_both_ways"),
            (4, "message_rate", "", "message_rate"),
            (4, "collectives", "", collectives),
            (3, "collectives", "--only allreduce,gather", "allreduce gather"),
            (2, "overlap", "", "overlap_sender overlap_receiver"),
        ] {
            let told = benchmarks.figures(ranks, name, &format!("{arguments} --time 0.01 --size 8,1K"));
            let barrier = figures.starts_with("bcast").then(|| ("barrier".to_owned(), 0));
            let sized =
                figures.split(' ').flat_map(|figure| [(figure.to_owned(), 8), (figure.to_owned(), 1024)]);
            let expected: Vec<_> = barrier.into_iter().chain(sized).collect();
            assert_eq!(told, expected, "{}, {name} {arguments}", benchmarks.mpi.name);
        }
    }
}

#[test]
fn a_table_is_printed_for_people() {
    let Some(_watch) = as_root("a_table_is_printed_for_people", None) else { return };
    let Some(mpi) = Mpi::installed("mpich") else { return };
    let benchmarks = Benchmarks::build(mpi, Path::new(SOURCES));
    let (code, said) = benchmarks.run(2, "latency", "--time 0.01 --size 0,8..64");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("# Size ") && said.contains("Latency (us)"), "{said}");
    let sizes = said.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u32>().ok());
    assert_eq!(sizes.collect::<Vec<_>>(), [0, 8, 16, 32, 64], "{said}");
}

#[test]
fn wrong_usage_is_explained() {
    let Some(_watch) = as_root("wrong_usage_is_explained", None) else { return };
    for benchmarks in Benchmarks::all() {
        let cases = [
            (2, "latency", "--sizes 8", "there is no option --sizes"),
            (2, "latency", "--size 8..", "--size 8..: write sizes up to 1G, such as --size 8..64K"),
            (2, "latency", "--size 64K..8", "a range begins with the smaller size"),
            (2, "latency", "--udp --size 128K", "--udp is for at most 65536 bytes"),
            (2, "bandwidth", "--udp", "write --both-ways as well"),
            (3, "bandwidth", "", "it takes 2 ranks and there are 3: write mpiexec -n 2"),
            (2, "bandwidth", "--window", "--window needs a value: write --window MESSAGES"),
            (2, "bandwidth", "--window 0", "write a whole number from 1 on"),
            (3, "message_rate", "", "write an even number"),
            (2, "collectives", "--only bcast,cast", "there is no operation \"cast\""),
            (2, "collectives", "--size 6", "write multiples of 4"),
            (2, "overlap", "--time 0", "write seconds above 0"),
            (2, "is", "--class D", "write S, W, A, B or C"),
        ];
        // What is said does not depend on the MPI, whether its launcher passes on the exit code does.
        let count = if benchmarks.mpi.name == "mpich" { cases.len() } else { 2 };
        for (ranks, name, arguments, says) in cases.into_iter().take(count) {
            let (code, said) = benchmarks.run(ranks, name, arguments);
            assert!(code == Some(2) && said.contains(says), "{name} {arguments}: {code:?}, {said}");
            assert_eq!(said.matches(says).count(), 1, "only rank 0 says it: {said}");
        }
        let (code, said) = benchmarks.run(2, "collectives", "--help");
        assert!(code == Some(0) && said.contains("--only") && said.contains("mpiexec -n 4"), "{said}");
    }
}
