//! Finds source files that need each other in a circle: none of them can be read, or changed, without all.
//!
//! A file needs another when it names something that is defined there. What a file takes from the modules that it is itself a
//! part of does not count: a folder's own file is the ground that its other files stand on. Tests do not count either.
//!
//! A package of its own, because it reads Rust, and `xtask` depends on nothing. `cargo xtask circles` runs it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod graph;
mod modules;
mod names;

use graph::Graph;

fn main() -> ExitCode {
    let (mut circles, root) = (0, root());
    for package in packages(&root) {
        for graph in graphs(&package) {
            for circle in graph.circles() {
                circles += 1;
                println!("{} files need each other:", circle.len());
                circle
                    .iter()
                    .flat_map(|file| graph.shown(*file, &circle, &root))
                    .for_each(|line| println!("  {line}"));
            }
        }
    }
    println!("circles: {circles}");
    if circles == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The project's folder.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).map(Path::to_owned).unwrap_or_default()
}

/// Folders of the workspace's packages.
fn packages(root: &Path) -> Vec<PathBuf> {
    let crates =
        std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten().map(|entry| entry.path());
    let others = ["sim", "xtask", "xtask/circles", "xtask/targets"].map(|folder| root.join(folder));
    let mut all: Vec<PathBuf> =
        crates.chain(others).filter(|folder| folder.join("Cargo.toml").exists()).collect();
    all.sort();
    all
}

/// Of its library and of its program.
fn graphs(package: &Path) -> Vec<Graph> {
    let roots = ["src/lib.rs", "src/main.rs"].map(|file| package.join(file));
    roots.iter().filter(|file| file.exists()).map(|file| Graph::of(&modules::read(file))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_of_the_project_needs_one_that_needs_it() {
        let root = root();
        let packages = packages(&root);
        assert!(packages.len() > 8, "{packages:?}");
        for graph in packages.iter().flat_map(|package| graphs(package)) {
            let circles = graph.circles();
            let shown = circles.iter().map(|circle| {
                circle.iter().flat_map(|file| graph.shown(*file, circle, &root)).collect::<Vec<String>>()
            });
            assert!(circles.is_empty(), "{:#?}", shown.collect::<Vec<_>>());
        }
    }
}
