//! What scripts may rely on: output, exit codes and traces of `tsumugi lab` and `tsumugi doctor`.

use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tsumugi_lab::testing::as_root;
use tsumugi_lab::{Lab, Spec};

fn tsumugi(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tsumugi"));
    command.args(line.split_whitespace()).output().expect("the command starts")
}

/// Runs it and returns what it prints, if it ends with that code.
fn expect(line: &str, code: i32) -> (String, String) {
    let output = tsumugi(line);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints text");
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "{line}: {out}{err}");
    (out, err)
}

/// Removes the lab when the test ends, however it ends.
struct Named(String);

impl Named {
    fn new(stem: &str) -> Named {
        Named(format!("{stem}-{}", std::process::id()))
    }

    fn exists(&self) -> bool {
        let spaces = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let prefix = format!("tsu-{}-", self.0);
        let mut spaces = spaces.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        Path::new("/run/tsumugi/lab").join(&self.0).exists() || spaces.next().is_some()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = tsumugi(&format!("lab down --name {}", self.0));
    }
}

#[test]
fn wrong_usage_is_told_from_failure() {
    for (line, reason) in [
        ("lab up --nodes 0", "0 is not in 1..=64"),
        ("lab up --nodes -1", "-1 is not in 1..=64"),
        ("lab up --nodes 65", "65 is not in 1..=64"),
        ("lab up --nics 0", "0 is not in 1..=8"),
        ("lab up --mtu 575", "575"),
        ("lab up --mtu 65536", "65536"),
        ("lab up --rate fast", "fast"),
        ("lab up --rate -1", "'-1'"),
        ("lab up --name ../x", "../x"),
        ("lab up --nodes 3 --wire direct", "exactly 2 nodes"),
        ("lab up --rate 1gbit --wire direct", "--wire switch"),
        ("lab down --name ../x", "../x"),
        ("lab exec n0", "required"),
        ("lab up --offloads maybe", "maybe"),
    ] {
        let (out, err) = expect(line, 2);
        assert!(out.is_empty() && err.contains(reason), "{line}: {out}{err}");
    }
}

#[test]
fn a_lab_from_up_to_down() {
    let Some(_watched) = as_root("a_lab_from_up_to_down", None) else { return };
    let named = Named::new("cli");
    let name = &named.0;
    let script = std::env::temp_dir().join(name);
    fs::write(&script, "exit 7\n").expect("it can be written");
    expect(&format!("lab up --name {name} --nics 2 --mtu 9000"), 0);
    let (_, err) = expect(&format!("lab up --name {name}"), 1);
    assert!(err.contains(&format!("tsumugi lab down --name {name}")), "{err}");

    let (host, _) = expect(&format!("lab exec --name {name} n1 -- hostname"), 0);
    assert_eq!(host, "n1\n");
    let (host, _) = expect(&format!("lab exec --name {name} 10.77.1.2 -- hostname"), 0);
    assert_eq!(host, "n1\n", "found by the address of its second NIC");
    expect(&format!("lab exec --name {name} n0 -- sh {}", script.display()), 7);
    expect(&format!("lab exec --name {name} n0 -- false"), 1);
    fs::remove_file(&script).expect("it was there");
    expect(&format!("lab exec --name {name} n0 -- no-such-command"), 127);
    expect(&format!("lab exec --name {name} n0 -- /etc/hosts"), 126);
    let (_, err) = expect(&format!("lab exec --name {name} n2 -- true"), 1);
    assert!(err.contains("n0 to n1"), "{err}");
    let (id, _) = expect(&format!("lab exec --name {name} n0 -- id -u"), 0);
    assert_eq!(id, "0\n", "root stays root");

    let (json, err) = expect("lab status --json", 0);
    assert_eq!(err, "");
    let status: serde_json::Value = serde_json::from_str(&json).expect("one JSON object");
    let labs = status["labs"].as_array().expect("a list");
    let lab = labs.iter().find(|lab| lab["name"] == **name).expect("our lab is listed");
    assert_eq!(lab["complete"], true);
    assert_eq!(lab["nodes"][1]["nics"][1]["address"], "10.77.1.2");
    let (table, _) = expect("lab status", 0);
    assert!(table.contains(&format!("{name}: 2 nodes, 2 NICs each, wire direct, MTU 9000 B")), "{table}");

    // Removing it from inside would end the process that removes.
    let inside =
        format!("lab exec --name {name} n0 -- {} lab down --name {name}", env!("CARGO_BIN_EXE_tsumugi"));
    let (_, err) = expect(&inside, 1);
    assert!(err.contains("from inside"), "{err}");

    expect(&format!("lab down --name {name}"), 0);
    assert!(!named.exists());
    expect(&format!("lab down --name {name}"), 1);
    let (_, err) = expect(&format!("lab exec --name {name} n0 -- true"), 1);
    assert!(err.contains("there is no lab"), "{err}");
}

#[test]
fn the_launcher_can_be_run_while_another_job_writes_it() {
    let Some(_watched) = as_root("the_launcher_can_be_run_while_another_job_writes_it", None) else { return };
    let lab = Lab::up(&Spec::unique("launcher")).expect("the lab is made").guarded();
    let program = Path::new(env!("CARGO_BIN_EXE_tsumugi"));
    let launcher = lab.write_launcher(program).expect("it is written");
    let mut other = Command::new("sh");
    other.args(["-c", "for i in $(seq 50); do \"$0\" n1 true || exit 1; done"]).arg(&launcher);
    let mut other = other.spawn().expect("the shell starts");
    let status = loop {
        lab.write_launcher(program).expect("it is written");
        if let Some(status) = other.try_wait().expect("our child") {
            break status;
        }
    };
    assert!(status.success());
}

#[test]
fn the_launcher_takes_what_ssh_takes() {
    let Some(_watched) = as_root("the_launcher_takes_what_ssh_takes", None) else { return };
    let named = Named::new("ssh");
    expect(&format!("lab up --name {} --nodes 3", named.0), 0);
    let launcher = format!("/run/tsumugi/lab/{}/ssh", named.0);
    let run = |words: &[&str]| {
        let output = Command::new(&launcher).args(words).stdin(Stdio::null()).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let line = "echo \"$(hostname)\"  'a  b' ; exit 3";
    assert_eq!(run(&["-x", "-q", "-o", "BatchMode=yes", "root@n2", line]), (Some(3), "n2 a  b\n".into()));
    assert_eq!(
        run(&["n1", "echo", "a", "&&", "hostname"]),
        (Some(0), "a\nn1\n".into()),
        "words reach a shell"
    );
    assert_eq!(run(&["n9", "true"]).0, Some(255));
    assert_eq!(run(&["-x"]).0, Some(255));
    // From inside a node, as mpiexec uses it, and with the lab's name from the environment.
    let nested = format!("lab exec --name {} n0 -- {launcher} -x n2 hostname", named.0);
    assert_eq!(expect(&nested, 0).0, "n2\n");
    let program = env!("CARGO_BIN_EXE_tsumugi");
    let nested = format!("lab exec --name {} n0 -- {program} lab ssh -x n1 hostname", named.0);
    assert_eq!(expect(&nested, 0).0, "n1\n");
}

#[test]
fn ctrl_c_while_a_lab_is_made_undoes_it() {
    let Some(_watched) = as_root("ctrl_c_while_a_lab_is_made_undoes_it", None) else { return };
    for moment in 0..8 {
        let named = Named::new(&format!("ctrl-c{moment}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_tsumugi"));
        command.args(["lab", "up", "--name", &named.0, "--nodes", "24", "--nics", "2", "--wire", "switch"]);
        // A process group of its own: as on a terminal, everything in it gets the signal.
        let mut child = command.process_group(0).stderr(Stdio::piped()).spawn().expect("it starts");
        while !Path::new("/run/tsumugi/lab").join(&named.0).join("state.json").exists() {
            assert!(child.try_wait().expect("it can be asked").is_none(), "it ended without a record");
            std::thread::sleep(Duration::from_micros(100));
        }
        std::thread::sleep(Duration::from_millis(8 * moment));
        kill_process_group(Pid::from_child(&child), Signal::INT).expect("the group of our own child");
        let output = child.wait_with_output().expect("it ends");
        // On a fast machine it may have been ready before the signal came; then it stands, whole.
        if output.status.success() {
            expect(&format!("lab exec --name {} n23 -- true", named.0), 0);
        } else {
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{complaint}");
            assert!(complaint.contains("interrupted"), "moment {moment}: {complaint}");
            assert!(!named.exists(), "moment {moment}: something is left");
        }
    }
}

#[test]
fn without_root_labs_are_refused_and_the_doctor_works() {
    let Some(_watched) = as_root("without_root_labs_are_refused_and_the_doctor_works", None) else { return };
    // The build's folder may be closed to others, so a copy is what nobody runs.
    let copy = std::env::temp_dir().join(format!("tsumugi-{}", std::process::id()));
    // By another process: a test that starts one meanwhile would hand it our descriptor, and what is open for writing
    // cannot be run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_tsumugi")).arg(&copy).status();
    assert!(copied.expect("cp starts").success());
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let nobody = |line: &str| {
        let mut command = Command::new(&copy);
        command.args(line.split(' ')).uid(65534).gid(65534).current_dir("/");
        command.output().expect("it starts")
    };
    let refused = [nobody("lab up"), nobody("lab down"), nobody("lab down --all")];
    let doctor = nobody("doctor --json");
    fs::remove_file(&copy).expect("it was there");
    for output in refused {
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains("needs root"), "{complaint}");
    }
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).expect("one JSON object");
    assert_eq!(report["ok"], doctor.status.success());
    let findings = report["findings"].as_array().expect("a list");
    let find = |check: &str| findings.iter().find(|f| f["check"] == check).expect("it is checked");
    assert_eq!(find("XDP program")["verdict"], "missing");
    assert_eq!(find("namespaces")["verdict"], "note");
    assert_eq!(find("UDP")["verdict"], "ok");
}
