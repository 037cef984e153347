//! MPI programs across the nodes of a lab, over the provider: MPICH and Open MPI, as PyPI has them.
//!
//! The programs are in `crates/tsumugi-ofi/tests/mpi`; each checks what it gets and ends the job when something is wrong.

mod common;
#[path = "common/mpi.rs"]
mod mpi;

use common::with_xdp;
use mpi::{ALONE, Mpi, TSUMUGI};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::PoisonError;
use tsumugi_lab::testing::as_root;
use tsumugi_lab::{Lab, Spec};

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tsumugi-ofi/tests/mpi");

impl Mpi {
    /// Builds one of the programs.
    fn build(&self, name: &str) -> PathBuf {
        // Tests in parallel build the same ones: under this name there is a whole program at any time.
        let program = self.built.join(name);
        let [process, thread] =
            [std::process::id().to_string(), format!("{:?}", std::thread::current().id())];
        let new = self.built.join(format!("{name}-{process}-{thread}"));
        let source = Path::new(PROGRAMS).join(format!("{name}.c"));
        let mut compiler = Command::new(self.programs.join("mpicc"));
        let output = compiler.args(["-O1", "-pthread", "-o"]).arg(&new).arg(source).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(new, &program).unwrap();
        program
    }

    /// Runs a job that must end well, and say so.
    fn succeed(&self, options: &[&str], settings: &[(&str, &str)], program: &[&str], says: &str) {
        let (well, said) = self.run(options, settings, program);
        assert!(well && said.contains(says), "{}, {options:?}, {settings:?}, {program:?}: {said}", self.name);
    }
}

#[test]
fn programs_of_every_kind_run_over_it() {
    let Some(_watch) = as_root("programs_of_every_kind_run_over_it", None) else { return };
    for mpi in Mpi::all() {
        for (name, arguments) in
            [("messages", &["268435456"][..]), ("collectives", &[]), ("windows", &[]), ("threads", &[])]
        {
            let program = mpi.build(name);
            let program: Vec<&str> =
                [program.to_str().unwrap()].into_iter().chain(arguments.iter().copied()).collect();
            mpi.succeed(&[], &[], &program, &format!("{name}: ok"));
        }
        let arrays = format!("{PROGRAMS}/arrays.py");
        let python = mpi.programs.join("python3");
        mpi.succeed(&[], &[], &[python.to_str().unwrap(), &arrays], "arrays: ok");
    }
}

#[test]
fn losses_are_not_seen() {
    let Some(_watch) = as_root("losses_are_not_seen", None) else { return };
    for mpi in Mpi::all() {
        for name in ["messages", "collectives", "windows", "threads"] {
            let program = mpi.build(name);
            let loss = [("FI_TSUMUGI_FAULTS", "loss=1%")];
            mpi.succeed(&[], &loss, &[program.to_str().unwrap()], &format!("{name}: ok"));
        }
    }
}

/// How many endpoints a job said that they receive through the XDP program, and through sockets.
fn receive_paths(said: &str) -> [usize; 2] {
    ["xdp", "socket"].map(|receive_path| said.matches(&format!(": receive path {receive_path}, ")).count())
}

#[test]
fn the_xdp_program_receives_for_programs_of_every_kind() {
    let Some(_watch) = with_xdp("the_xdp_program_receives_for_programs_of_every_kind") else {
        return;
    };
    for mpi in Mpi::all() {
        for name in ["messages", "collectives", "windows", "threads"] {
            let program = mpi.build(name);
            let log = [("FI_LOG_LEVEL", "info"), ("FI_LOG_PROV", "tsumugi")];
            let (well, said) = mpi.run(&["--xdp"], &log, &[program.to_str().unwrap()]);
            assert!(well && said.contains(&format!("{name}: ok")), "{}: {said}", mpi.name);
            // Open MPI opens two in each rank.
            assert_eq!(receive_paths(&said), [if mpi.name == "openmpi" { 4 } else { 2 }, 0], "{said}");
        }
        let program = mpi.build("messages");
        let settings = [("FI_TSUMUGI_FAULTS", "loss=1%")];
        let options = ["--xdp", "--nodes", "3", "-n", "6"];
        mpi.succeed(&options, &settings, &[program.to_str().unwrap(), "65536"], "messages: ok");
    }
}

#[test]
fn jobs_of_two_users_share_nodes_of_which_one_has_xdp() {
    let test = "jobs_of_two_users_share_nodes_of_which_one_has_xdp";
    let Some(_watch) = with_xdp(test) else { return };
    let Some(mpi) = Mpi::installed("mpich") else { return };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let lab = Lab::up(&Spec::unique("users")).expect("the lab is made").guarded();
    let name = ["--name", lab.name()];
    for [xdp, sockets] in [[0_usize, 2], [1, 1], [2, 0]] {
        if let Some(node) = xdp.checked_sub(1) {
            let mut up = lab.command(node, TSUMUGI).expect("the node can be entered");
            let up = up.args(["up", "nic0", "--endpoints", "4", "--mode", "666"]).output().unwrap();
            assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        }
        for kind in ["messages", "windows"] {
            let program = mpi.build(kind);
            let job = |user: &str| {
                // The folders need not be open to everybody.
                let rights = "+dac_read_search";
                let (uid, gid) = (format!("--reuid={user}"), format!("--regid={user}"));
                let (inherit, keep) = (format!("--inh-caps={rights}"), format!("--ambient-caps={rights}"));
                let program = program.to_str().unwrap();
                let program = ["setpriv", &uid, &gid, "--clear-groups", &inherit, &keep, program];
                let log = [("FI_LOG_LEVEL", "info"), ("FI_LOG_PROV", "tsumugi")];
                mpi.run_beside_others(&name, &log, &program)
            };
            let results = std::thread::scope(|scope| {
                let other = scope.spawn(|| job("4001"));
                [job("4002"), other.join().unwrap()]
            });
            for (code, said) in results {
                assert!(code == Some(0) && said.contains(&format!("{kind}: ok")), "{said}");
                assert_eq!(receive_paths(&said), [xdp, sockets], "{said}");
            }
        }
    }
}

#[test]
fn more_ranks_than_cores_end_in_time() {
    let Some(_watch) = as_root("more_ranks_than_cores_end_in_time", None) else { return };
    for mpi in Mpi::all() {
        for name in ["messages", "collectives"] {
            let program = mpi.build(name);
            let nodes = ["--nodes", "4", "-n", "8"];
            mpi.succeed(&nodes, &[], &[program.to_str().unwrap(), "65536"], &format!("{name}: ok"));
        }
    }
}

#[test]
fn children_are_spawned_and_programs_are_forked() {
    let Some(_watch) = as_root("children_are_spawned_and_programs_are_forked", None) else { return };
    for mpi in Mpi::all() {
        let program = mpi.build("spawn");
        // Open MPI 5.0.11's own launcher dies of it now and then where there are several nodes, whatever carries the messages.
        let nodes: &[&str] = if mpi.name == "openmpi" { &["--nodes", "1", "-n", "2"] } else { &[] };
        mpi.succeed(nodes, &[], &[program.to_str().unwrap()], "spawn: ok");
    }
}

#[test]
fn the_others_go_on_without_a_rank_that_was_killed() {
    let Some(_watch) = as_root("the_others_go_on_without_a_rank_that_was_killed", None) else { return };
    let Some(mpi) = Mpi::installed("openmpi") else { return };
    let program = mpi.build("shrink");
    let mut options = vec!["--nodes", "3"];
    // Only this way through Open MPI goes on after a failure; its collectives for nodes of several ranks do not.
    let further = "--with-ft ulfm --mca pml ob1 --mca btl ofi,self --mca btl_ofi_mode 2 --mca coll ^han";
    options.extend(further.split(' ').flat_map(|argument| ["--pass", argument]));
    let (_, said) = mpi.run(&options, &[], &[program.to_str().unwrap()]);
    assert!(said.contains("shrink: ok, 2 are left"), "{said}");
}

#[test]
fn a_rank_that_is_killed_keeps_nobody_waiting() {
    let Some(_watch) = as_root("a_rank_that_is_killed_keeps_nobody_waiting", None) else { return };
    for mpi in Mpi::all() {
        let program = mpi.build("killed");
        let (well, said) = mpi.run(&["--nodes", "3"], &[], &[program.to_str().unwrap()]);
        assert!(!well && !said.contains("not within"), "{}: {said}", mpi.name);
    }
}

#[test]
fn an_evaluation_tells_each_figure_of_everything_that_carries_messages() {
    let Some(_watch) = as_root("an_evaluation_tells_each_figure", None) else { return };
    if let Some(mpi) = Mpi::installed("mpich") {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = Command::new(TSUMUGI);
        let page = tempfile::NamedTempFile::new().unwrap();
        command.args([
            "eval", "mpi", "--mpi", mpi.name, "--rounds", "1", "--time", "0.01", "--class", "s", "--quick",
        ]);
        let output = command.arg("--json").arg("--html").arg(page.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&told["mpi"], &told["class"]), (&mpi.name.into(), &"S".into()));
        assert_eq!(told["failures"], serde_json::json!([]));
        let rows = told["rows"].as_array().unwrap();
        let of = |figure: &str, over: &str| {
            let is = |row: &&serde_json::Value| row["figure"] == figure && row["over"] == over;
            rows.iter().filter(is).count()
        };
        // Of a rank alone only one.
        assert_eq!(of("is_time", "tcp"), 3);
        for over in ["bare-udp", "bare-udp-xdp"] {
            assert_eq!((of("udp_latency", over), of("udp_bandwidth_both_ways", over)), (5, 3), "{over}");
        }
        for over in ["tcp", "ucx", "tsumugi-socket", "tsumugi-xdp"] {
            let counts = [
                "latency",
                "bandwidth_both_ways",
                "allreduce",
                "barrier",
                "overlap_receiver",
                "message_rate",
            ];
            assert_eq!(counts.map(|figure| of(figure, over)), [5, 5, 6, 2, 4, 1], "{over}");
        }
        let ratios = rows.iter().filter(|row| row["over"] == "tsumugi-socket" && row["unit"] != "ratio");
        assert!(ratios.clone().count() > 50);
        assert!(
            ratios.clone().all(|row| row["over_tcp"].as_f64().unwrap() > 0.0 && row["over_ucx"].is_f64())
        );
        let page = std::fs::read_to_string(page.path()).unwrap();
        let page = roxmltree::Document::parse_with_options(
            &page,
            roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() },
        );
        let page = page.expect("well-formed");
        let headings =
            page.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/1999/xhtml", "h2")));
        let headings: Vec<&str> = headings.filter_map(|node| node.text()).collect();
        let expected = [
            "What Tsumugi gives on this machine",
            "Two ranks",
            "Collective operations",
            "Integer sort, class S",
            "Overlap",
            "Figures",
            "How this was measured",
        ];
        assert_eq!(headings, expected);
        let left = std::fs::read_dir(mpi.programs.parent().unwrap()).unwrap();
        let left =
            left.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("bench-"));
        assert_eq!(left.count(), 0, "the programs that were built are gone");
    }
}
