//! Whether commands are well-formed: `tsumugi` and `tsumugi-mpiexec` as their own command lines say, and what others name exists.

use clap::error::ErrorKind;
use std::path::Path;
use tsumugi_cli::pages::commands;

/// Why a command cannot be typed like this, if it cannot.
pub(crate) fn complaint(root: &Path, line: &str, is_inline: bool) -> Option<String> {
    let words: Vec<String> = line.split_whitespace().map(|word| word.replace(['\'', '"'], "")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != "…").collect();
    // What stands for more to be written is not whole either.
    let is_whole = !is_inline && !line.contains('…');
    (0..words.len()).find_map(|at| {
        let (before, rest) = (&words[..at], &words[at + 1..]);
        let segment =
            before.iter().rposition(|word| is_operator(word)).map_or(before, |end| &before[end + 1..]);
        let is_prefix = |word: &&str| *word == "sudo" || word.contains('=');
        let is_typed = words[at].contains("$(")
            || segment.iter().all(is_prefix)
            || segment.last() == Some(&"--")
            || segment.len() == 2 && segment[0] == "ssh";
        let end = rest
            .iter()
            .position(|word| is_operator(word) || word.contains(')'))
            .map_or(rest.len(), |at| at + usize::from(rest[at].contains(')')));
        let program = words[at].rsplit(['/', '(']).next().unwrap_or_default();
        match program {
            _ if !is_typed => None,
            "tsumugi" | "tsumugi-mpiexec" => parse(program, &rest[..end], is_whole),
            "make" => no_target(root, &rest[..end]),
            "cargo" => nothing_of_that_name(root, &rest[..end]),
            _ => None,
        }
    })
}

fn is_operator(word: &str) -> bool {
    matches!(word, "|" | "\\|" | "&" | "&&") || word.starts_with("2>") || word.starts_with('>')
}

/// What clap has against it.
fn parse(program: &str, words: &[&str], is_whole: bool) -> Option<String> {
    let words: Vec<&str> = words.iter().map(|word| word.split(')').next().unwrap_or_default()).collect();
    let command = commands().into_iter().find(|command| command.get_name() == program)?;
    let error = command.try_get_matches_from([&[program], &words[..]].concat()).err()?;
    let is_no_fault = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        // In running text a command may stand for itself, without what it needs.
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => !is_whole,
        _ => false,
    };
    (!is_no_fault).then(|| error.to_string())
}

/// A target that the Makefile does not have.
fn no_target(root: &Path, words: &[&str]) -> Option<String> {
    let makefile = std::fs::read_to_string(root.join("Makefile")).unwrap();
    let mut targets = words.iter().filter(|word| !word.contains(['=', '-', '/']));
    // In another folder there is another Makefile.
    let is_elsewhere = words.first() == Some(&"-C");
    let target = targets.find(|target| !is_elsewhere && !makefile.contains(&format!("\n{target}:")))?;
    Some(format!("the Makefile has no target '{target}'"))
}

/// A package, example, test or chore that there is not.
fn nothing_of_that_name(root: &Path, words: &[&str]) -> Option<String> {
    let exists = |pattern: &[&str], name: &str| {
        let folders = ["sim", "xtask"].map(|folder| root.join(folder)).into_iter();
        let crates = std::fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
        folders
            .chain(crates)
            .any(|folder| pattern.iter().any(|it| folder.join(it.replace('*', name)).exists()))
    };
    words.windows(2).find_map(|pair| {
        let name = pair[1];
        let is_there = match pair[0] {
            "-p" | "--package" => name == "tsumugi-sim" || root.join("crates").join(name).exists(),
            "--example" => exists(&["examples/*.rs"], name),
            "--test" => exists(&["tests/*.rs", "tests/*/main.rs"], name),
            "--path" => root.join(name).exists(),
            "xtask" => std::fs::read_to_string(root.join("xtask/src/main.rs"))
                .unwrap()
                .contains(&format!("[\"{name}\"")),
            _ => true,
        };
        (!is_there).then(|| format!("'{} {name}': there is none", pair[0]))
    })
}
