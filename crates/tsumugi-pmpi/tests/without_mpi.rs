//! The library as it is built, in a process that has no MPI.

use std::path::PathBuf;
use std::process::Command;

/// The library beside this test, where cargo leaves it.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let folders = test.ancestors().skip(1).take(2);
    let mut files = folders.map(|folder| folder.join("libtsumugi_pmpi.so"));
    files.find(|file| file.exists()).expect("cargo has built it")
}

#[test]
fn programs_without_an_mpi_do_not_see_it() {
    let output = Command::new("true").env("LD_PRELOAD", library()).output().expect("it runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
