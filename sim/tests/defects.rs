//! What the simulation says of defects in an ordinary build, which has none.

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tsumugi-sim"))
        .args(arguments)
        .output()
        .expect("it was built for this test")
}

/// Fails where the feature was switched on for a whole workspace: the product is built without it.
#[test]
fn an_ordinary_build_has_no_defects() {
    let output = simulate(&["--defect", "xoff-ignored", "--seeds", "0..1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("built without defects"), "{said}");
}

#[test]
fn defects_are_listed_with_what_they_break() {
    let output = simulate(&["--defects"]);
    let listed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{listed}");
    let row = listed.lines().find_map(|line| line.strip_prefix("go-back-n-out-of-order "));
    assert_eq!(row.map(str::trim), Some("a Go-back-N flow takes packets in any order"), "{listed}");
}
