//! The commands that the pages show do what they show: each is typed, or is on a list with the reason why it is not.

#[path = "../common/mpi.rs"]
mod mpi;

mod extract;
mod sandbox;
mod table;
mod words;

use extract::Shown;
use sandbox::Sandbox;
use std::fs;
use std::path::{Path, PathBuf};
use table::{TABLE, What};
use tsumugi_lab::testing::as_root;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The commands of every page, by page.
fn shown() -> Vec<(String, Vec<Shown>)> {
    let pages = extract::pages(&root()).into_iter();
    pages.map(|(name, text)| (name.clone(), extract::commands(&name, &text))).collect()
}

/// The text of a page's block in this language.
fn block(page: &str, language: &str) -> String {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let (_, rest) = text.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn every_command_is_well_formed() {
    let complaints: Vec<String> = shown()
        .into_iter()
        .flat_map(|(_, commands)| commands)
        .filter_map(|Shown { place, line, is_inline }| {
            let complaint = words::complaint(&root(), &line, is_inline)?;
            Some(format!("{place}: {line}\n  {complaint}"))
        })
        .collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn every_command_is_in_the_table() {
    let mut rest =
        TABLE.iter().flat_map(|(page, commands)| commands.iter().map(move |(line, _)| (*page, *line)));
    for (page, commands) in shown() {
        for Shown { place, line, .. } in commands.into_iter().filter(|shown| !shown.is_inline) {
            assert_eq!(
                rest.next(),
                Some((page.as_str(), line.as_str())),
                "{place}: what becomes of this command? Say so in tests/pages/table.rs, in the order of the pages"
            );
        }
    }
    assert_eq!(rest.next(), None, "no page shows this command");
}

#[test]
fn what_is_not_typed_is_run_by_the_test_that_is_named() {
    for (_, what) in TABLE.iter().flat_map(|(_, commands)| commands.iter()) {
        let What::Not(why) = what else { continue };
        for file in why.split([' ', ';', ',']).filter(|word| word.starts_with("tests/")) {
            assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists(), "{why}");
        }
    }
}

#[test]
fn help_names_the_papers_that_it_cites() {
    fn check(command: &clap::Command, complaints: &mut Vec<String>) {
        let help = command.clone().render_long_help().to_string();
        for (paper, author) in
            [("P1", "Sumimoto"), ("P2", "Yoshida"), ("P3", "Aoki"), ("P4", "Konishi"), ("P5", "Kunisawa")]
        {
            let cites = help.split(|c: char| !c.is_alphanumeric()).any(|word| word == paper);
            if cites && !help.contains(author) {
                complaints.push(format!("{}: {paper} without {author}", command.get_name()));
            }
        }
        command.get_subcommands().for_each(|command| check(command, complaints));
    }
    let mut complaints = Vec::new();
    for mut command in tsumugi_cli::pages::commands() {
        command.build();
        check(&command, &mut complaints);
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn every_command_that_is_typed_does_what_its_page_shows() {
    let Some(_watched) = as_root("every_command_that_is_typed_does_what_its_page_shows", None) else {
        return;
    };
    let mut sandbox = Sandbox::new(&root());
    let mut complaints = Vec::new();
    let all = TABLE.iter().flat_map(|(page, all)| all.iter().map(move |(line, what)| (page, line, what)));
    for (page, line, what) in all {
        let (node, more, says) = match what {
            What::Typed(more, says) => (Some(0), more, says),
            What::Between(more, says) => (Some(2), more, says),
            What::Here(more, says) => (None, more, says),
            What::Not(why) => {
                println!("not typed: {line}: {why}");
                continue;
            }
        };
        if !sandbox.has_mpi && ["mpicc", "mpiexec"].iter().any(|program| line.contains(program)) {
            continue;
        }
        complaints.extend(sandbox.type_in(page, node, line, more, says));
    }
    // The files that the pages show.
    let page = "docs/cluster.md";
    sandbox.write(page, "firewall", &block(page, "nft"));
    sandbox.write(page, "up.toml", &block(page, "toml"));
    for line in ["nft --check --file firewall", "tsumugi up --config up.toml"] {
        complaints.extend(sandbox.type_in(page, Some(0), line, "", &[]));
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
