//! Programs that cargo builds beside tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder that cargo builds in.
pub(crate) fn target() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    // As cargo does: from where it was called.
    named.and_then(|named| std::path::absolute(named).ok()).unwrap_or_else(|| crate::root().join("target"))
}

/// Has cargo build into a folder, away from the programs that tests run, with what the tests' build has made of other people's
/// crates: if the profile is the same, that is half of the work. A cargo before 1.91 does without.
pub(crate) fn beside_the_tests(folder: &Path) -> [(&'static str, PathBuf); 2] {
    [("CARGO_TARGET_DIR", folder.to_owned()), ("CARGO_BUILD_BUILD_DIR", target())]
}

/// A program as the tests of this `cargo test` have it, so that nothing is built twice.
pub(crate) fn program(test: &[&str], environment: &[(&str, &str)], name: &str) -> Option<String> {
    let arguments = [test, &["--no-run", "--quiet", "--message-format", "json-render-diagnostics"]].concat();
    eprintln!("+ cargo {}", arguments.join(" "));
    let mut command = Command::new("cargo");
    command.args(arguments).envs(environment.iter().copied()).current_dir(crate::root());
    let output = command.stderr(Stdio::inherit()).output().ok()?;
    executable(&String::from_utf8_lossy(&output.stdout), name).map(str::to_owned)
}

/// A program's file, as cargo tells it: a line of JSON for each thing built.
fn executable<'a>(messages: &'a str, name: &str) -> Option<&'a str> {
    let end = format!("/{name}");
    let mut files =
        messages.lines().filter_map(|line| line.split_once("\"executable\":\"")?.1.split('"').next());
    files.find(|file| file.ends_with(&end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_found_among_what_was_built() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"a"},"executable":null,"fresh":true}
{"reason":"compiler-artifact","target":{"name":"tsumugi"},"executable":"/p/target/debug/deps/tsumugi-0f"}
{"reason":"compiler-artifact","target":{"name":"tsumugi"},"executable":"/p/target/debug/tsumugi","fresh":true}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "tsumugi"), Some("/p/target/debug/tsumugi"));
        assert_eq!(executable(messages, "other"), None);
    }
}
