//! `--collectives`: unmodified MPI programs whose barriers, broadcasts and reductions go by Tsumugi's groups, between lab nodes, by a
//! switch box and by messages.

mod common;
#[path = "common/mpi.rs"]
mod mpi;

use common::with_xdp;
use mpi::{ALONE, Mpi, TSUMUGI, text};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use tsumugi_lab::testing::as_root;
use tsumugi_lab::{Lab, Spec, Wire};

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tsumugi-ofi/tests/mpi");
const LOG: [(&str, &str); 1] = [("TSUMUGI_COLLECTIVES_LOG", "info")];

/// A program that an MPI's compiler has built, gone when this is dropped.
struct Program(PathBuf);

impl Program {
    /// `None`: the MPI has no such compiler.
    fn build(mpi: &Mpi, compiler: &str, name: &str) -> Option<Program> {
        let compiler = mpi.programs.join(compiler);
        if !compiler.exists() {
            return None;
        }
        // Tests in parallel build the same ones, and each removes its own.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let built = mpi.built.join(format!("pmpi-{name}-{process}-{number}"));
        let source = Path::new(PROGRAMS).join(format!("{name}.c"));
        let mut command = Command::new(compiler);
        let output = command.args(["-O1", "-pthread", "-o"]).arg(&built).arg(source).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Program(built))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a job with `--collectives` that must end well and say so; returns how many operations each process has told it has done.
fn succeed(mpi: &Mpi, options: &[&str], program: &[&str], says: &str) -> Vec<[u64; 4]> {
    let options = [&["--collectives"], options].concat();
    let (well, said) = mpi.run(&options, &LOG, program);
    assert!(well && said.contains(says), "{}, {options:?}, {program:?}: {said}", mpi.name);
    let counts = |line: &str| {
        let (_, told) = line.split_once("done here: ")?;
        let numbers = told.split([' ', ';']).filter_map(|word| word.parse().ok());
        <[u64; 4]>::try_from(numbers.collect::<Vec<u64>>()).ok()
    };
    said.lines().filter_map(counts).collect()
}

#[test]
fn constants_are_those_of_the_headers() {
    let Some(_watch) = as_root("constants_are_those_of_the_headers", None) else { return };
    for mpi in Mpi::all() {
        for compiler in ["mpicc", "mpicc_abi"] {
            let Some(program) = Program::build(&mpi, compiler, "constants") else { continue };
            succeed(&mpi, &[], &[program.path()], "constants: ok");
        }
    }
}

#[test]
fn programs_get_right_results_by_messages_over_any_transport() {
    let Some(_watch) = as_root("programs_get_right_results_by_messages", None) else { return };
    for mpi in Mpi::all() {
        let program = Program::build(&mpi, "mpicc", "taken").unwrap();
        let transports: &[&[&str]] = if mpi.name == "mpich" { &[&[], &["--over", "tcp"]] } else { &[&[]] };
        for over in transports {
            let done = succeed(&mpi, over, &[program.path()], "taken: ok");
            // Nearly all of them are taken, those that do not wait, too.
            assert_eq!(done.len(), 2, "{done:?}");
            for [barriers, broadcasts, reductions, started] in done {
                assert!(barriers > 200 && broadcasts > 15 && reductions > 500 && started > 25);
            }
        }
        // Several ranks of a node have one that stands for them.
        let done = succeed(&mpi, &["-n", "4"], &[program.path(), "one-thread"], "taken: ok");
        assert!(done.iter().any(|[barriers, ..]| *barriers > 10), "{done:?}");
        let collectives = Program::build(&mpi, "mpicc", "collectives").unwrap();
        let done = succeed(&mpi, &[], &[collectives.path()], "collectives: ok");
        assert!(done.len() == 2 && done.iter().all(|[barriers, ..]| *barriers >= 1000), "{done:?}");
        let arrays = format!("{PROGRAMS}/arrays.py");
        let python = mpi.programs.join("python3");
        let done = succeed(&mpi, &[], &[python.to_str().unwrap(), &arrays], "arrays: ok");
        // The broadcast is long.
        assert_eq!(done, [[1, 0, 1, 0]; 2], "{}", mpi.name);
    }
}

#[test]
fn a_switch_box_counts_for_unmodified_programs() {
    let test = "a_switch_box_counts_for_unmodified_programs";
    let Some(_watch) = with_xdp(test) else { return };
    let spec = Spec { nodes: 4, wire: Some(Wire::XdpSwitch), ..Spec::unique("pmpi") };
    let lab = Lab::up(&spec).expect("the lab is made").guarded();
    for mpi in Mpi::all() {
        for compiler in ["mpicc", "mpicc_abi"] {
            let Some(program) = Program::build(&mpi, compiler, "taken") else { continue };
            let (well, said) = mpi.run(&["--collectives", "--name", lab.name()], &LOG, &[program.path()]);
            assert!(well && said.contains("taken: ok"), "{}, {compiler}: {said}", mpi.name);
            assert!(said.contains("4 ranks on 4 nodes, by a switch box"), "{said}");
            if (mpi.name, compiler) != ("mpich", "mpicc") {
                continue;
            }
            // What is lost comes again, though the ranks are elsewhere.
            let lossy = [LOG[0], ("FI_TSUMUGI_FAULTS", "loss=1%")];
            let options = ["--collectives", "--name", lab.name()];
            let (well, said) = mpi.run(&options, &lossy, &[program.path(), "one-thread"]);
            assert!(well && said.contains("taken: ok"), "{}, {compiler}, under loss: {said}", mpi.name);
        }
    }
}

#[test]
fn sessions_are_served_without_mpi_init_and_beside_it() {
    let Some(_watch) = as_root("sessions_are_served_without_mpi_init_and_beside_it", None) else { return };
    for mpi in Mpi::all() {
        let program = Program::build(&mpi, "mpicc", "sessions").unwrap();
        let done = succeed(&mpi, &[], &[program.path(), "world"], "sessions: ok");
        assert!(done.contains(&[250, 260, 255, 10]), "{}: {done:?}", mpi.name);
        if mpi.name == "mpich" {
            // What ends with the last session begins once more with another.
            let done = succeed(&mpi, &[], &[program.path()], "sessions: ok");
            assert!(done.len() == 4 && done.contains(&[50, 52, 51, 2]), "{done:?}");
        }
    }
}

#[test]
fn the_xdp_program_receives_for_collectives_too() {
    let Some(_watch) = with_xdp("the_xdp_program_receives_for_collectives_too") else { return };
    for mpi in Mpi::all() {
        let program = Program::build(&mpi, "mpicc", "taken").unwrap();
        let (well, said) = mpi.run(&["--collectives", "--xdp"], &LOG, &[program.path(), "one-thread"]);
        assert!(well && said.contains("taken: ok"), "{}: {said}", mpi.name);
        assert_eq!(said.matches(": receive path xdp, ").count(), 2, "{}: {said}", mpi.name);
    }
}

#[test]
fn an_evaluation_tells_who_does_them_how_fast() {
    let Some(_watch) = as_root("an_evaluation_tells_who_does_them_how_fast", None) else { return };
    let Some(mpi) = Mpi::installed("mpich") else { return };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let eval = |form: &[&str]| {
        let mut command = Command::new(TSUMUGI);
        command.args(["eval", "collectives", "--mpi", mpi.name, "--nodes", "2", "--rounds", "1"]);
        let output = command.args(["--time", "0.01"]).args(form).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let rows =
        ["barrier", "allreduce"].map(|figure| ["MPI", "by messages", "by the box"].map(|way| [figure, way]));
    let rows = rows.concat();
    let told: serde_json::Value = serde_json::from_str(&eval(&["--json"])).unwrap();
    assert_eq!((&told["mpi"], &told["nodes"], &told["rounds"]), (&"mpich".into(), &2.into(), &1.into()));
    let figures = told["figures"].as_array().unwrap();
    let of: Vec<[&str; 2]> =
        figures.iter().map(|row| ["figure", "way"].map(|key| row[key].as_str().unwrap())).collect();
    assert_eq!(of, rows);
    for row in figures {
        let is_positive = |key: &&str| row[*key].as_f64().is_some_and(|value| value > 0.0);
        assert!(["time_us", "gain", "beside_barrier"].iter().all(is_positive), "{row}");
    }
    let page = eval(&[]);
    let (header, table) = page.split_once("operation ").expect("a table");
    assert!(header.contains("receive path socket") && header.contains("1 round × 0.01 s"), "{page}");
    let lines: Vec<&str> = table.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), rows.len(), "{page}");
    for (line, [figure, way]) in lines.into_iter().zip(&rows) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let begins = [&[*figure], &way.split(' ').collect::<Vec<&str>>()[..]].concat();
        assert!(words.starts_with(&begins), "{page}");
        // One round has no spread.
        let numbers: Vec<f64> = words[begins.len()..].iter().filter_map(|word| word.parse().ok()).collect();
        let [time, gain, beside] = numbers[..] else { panic!("{page}") };
        assert!(time > 0.0 && gain > 0.0 && beside > 0.0, "{page}");
    }
}

#[test]
fn a_rank_that_is_killed_keeps_nobody_waiting() {
    let Some(_watch) = as_root("a_rank_that_is_killed_keeps_nobody_waiting", None) else { return };
    for mpi in Mpi::all() {
        let program = Program::build(&mpi, "mpicc", "killed").unwrap();
        let (well, said) = mpi.run(&["--collectives", "--nodes", "3"], &LOG, &[program.path(), "barrier"]);
        assert!(!well && !said.contains("not within"), "{}: {said}", mpi.name);
    }
}
