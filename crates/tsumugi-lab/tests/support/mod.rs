//! What the tests on real namespaces share.

#![allow(dead_code, reason = "every test program uses its own part")]

use std::fs;
use std::process::{Command, Stdio};
use tsumugi_lab::Lab;

/// Everything on this machine that carries the lab's name: namespaces, mounts, files, processes.
pub(crate) fn traces(lab: &str) -> Vec<String> {
    let mut traces = Vec::new();
    for folder in ["/run/netns", "/run/tsumugi/lab"] {
        let names = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        traces.extend(names.filter(|name| name.contains(lab)).map(|name| format!("{folder}/{name}")));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mount table is readable");
    traces.extend(mounts.lines().filter(|line| line.contains(lab)).map(str::to_owned));
    // Links of labs are made inside namespaces and never appear outside, not even for a moment.
    let links = fs::read_dir("/sys/class/net").expect("the NICs are listed").flatten();
    let links = links.map(|entry| entry.file_name().to_string_lossy().into_owned());
    traces.extend(links.filter(|name| name.contains("-nic")));
    for process in fs::read_dir("/proc").expect("processes are listed").flatten() {
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        let variable = format!("TSUMUGI_LAB={lab}");
        if environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()) {
            traces.push(process.path().display().to_string());
        }
    }
    traces
}

/// Fails if anything of the lab is left.
pub(crate) fn assert_gone(lab: &str, when: &str) {
    let left = traces(lab);
    assert!(left.is_empty(), "left over {when}: {left:#?}");
}

/// What a shell line prints in a node.
pub(crate) fn shell(lab: &Lab, node: usize, line: &str) -> String {
    let output = lab.command(node, "/bin/sh").expect("the node can be entered").args(["-c", line]).output();
    let output = output.expect("the shell starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "'{line}' in node {node}: {:?} {complaint}", output.status);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Lets this test program play a role (a test marked `ignore`) in a node or, without a lab, right here.
pub(crate) fn role(place: Option<(&Lab, usize)>, role: &str, settings: &[(&str, String)]) -> Command {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = match place {
        Some((lab, node)) => lab.command(node, program).expect("the node can be entered"),
        None => Command::new(program),
    };
    command.args(["--exact", role, "--ignored", "--nocapture", "--quiet"]);
    command.envs(settings.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}
