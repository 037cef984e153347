//! The project's style, as far as a program can see it and rustfmt and clippy do not.

use std::fs;
use std::path::{Path, PathBuf};

/// Most lines of a Rust file. A file has one reason to change; long before this it has two.
const RUST_LINES_MAX: usize = 600;
/// What the five papers are called, and whose they are: a page that says the former says the latter, too.
const PAPERS: [(&str, &str); 5] = [
    (concat!("P", "1"), "Sumimoto"),
    (concat!("P", "2"), "Yoshida"),
    (concat!("P", "3"), "Aoki"),
    (concat!("P", "4"), "Konishi"),
    (concat!("P", "5"), "Kunisawa"),
];
/// Whose comments users read, beside pages.
const DOCUMENTED: [&str; 3] =
    ["crates/tsumugi/src/", "crates/tsumugi-proto/src/", "crates/tsumugi-wire/src/"];
/// Folders that are made, not written.
const MADE: [&str; 4] = ["target", ".git", "out", "corpus"];
/// Endings of the files that are written by people. Files without an ending are told by name.
const WRITTEN: [&str; 12] =
    ["rs", "toml", "md", "c", "h", "lua", "sh", "py", "json", "yml", "txt", "proptest-regressions"];
const WRITTEN_NAMES: [&str; 2] = ["Makefile", "run"];
/// Work that was put off belongs where it is planned, not into the code. In two parts each, so that this file
/// passes its own check.
const PUT_OFF: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("to", "do!(")];
/// What gives a process a real-time priority. Two that spin at one leave the rest of a machine with two CPUs 5 % of it. To measure:
/// pin with `taskset`, interleave, and state the load.
const REAL_TIME: [&str; 3] = [concat!("ch", "rt"), concat!("SCHED", "_FIFO"), concat!("SCHED", "_RR")];
/// Where people keep their own files. What depends on them works on one machine only.
const OWN_FILES: [&str; 3] = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
/// Words that the project does not use, in any form, and what it says instead. In two parts each, as above.
const SAY: [(&str, &str); 3] = [
    (concat!("deposi", "tor"), "receive path"),
    (concat!("acquain", "tance"), "connection"),
    (concat!("tru", "nk"), "multirail, or path policy"),
];
/// Top folders that every machine has (Filesystem Hierarchy Standard). A path below any other, where this copy
/// of the project happens to be, is a path of this machine.
const EVERYWHERE: [&str; 15] = [
    "bin", "boot", "dev", "etc", "lib", "media", "mnt", "opt", "proc", "run", "srv", "sys", "tmp", "usr",
    "var",
];

/// Everything that is not as it should be, as `file:line: what`.
pub(crate) fn complaints(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    collect(root, &mut files);
    files.sort();
    let own = own_places(root);
    let mut found = Vec::new();
    for file in &files {
        let shown = file.strip_prefix(root).unwrap_or(file).display().to_string();
        match fs::read_to_string(file) {
            Ok(text) => {
                found.extend(check(&shown, &text, &own));
                if shown.ends_with(".md") {
                    found.extend(missing_files(&shown, &text, &files));
                }
            }
            Err(error) => found.push(format!("{shown}:1: cannot be read as text: {error}")),
        }
    }
    found
}

/// The complaints about source files that a page names and nobody has. It may leave out `crates/tsumugi-` and `src`.
fn missing_files(page: &str, text: &str, files: &[PathBuf]) -> Vec<String> {
    let short = |file: &str| format!("/{file}").replace("/tsumugi-", "/").replace("/src/", "/");
    let files: Vec<String> = files.iter().map(|file| short(&file.to_string_lossy())).collect();
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        // Every second piece stands between backticks.
        for name in line.split('`').skip(1).step_by(2) {
            let is_source = [".rs", ".h", ".c"].iter().any(|ending| name.ends_with(ending));
            let is_name = name.chars().all(|c| c.is_alphanumeric() || "_-./".contains(c));
            if is_source && is_name && !files.iter().any(|file| file.ends_with(&short(name))) {
                found.push(format!("{page}:{}: there is no file '{name}'", index + 1));
            }
        }
    }
    found
}

/// The written files below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && !MADE.contains(&name.as_str()) {
            collect(&path, files);
        } else if !is_folder {
            let ending = path.extension().map(|ending| ending.to_string_lossy().into_owned());
            let written = ending.map_or_else(
                || WRITTEN_NAMES.contains(&name.as_str()),
                |ending| WRITTEN.contains(&ending.as_str()),
            );
            files.extend(written.then_some(path));
        }
    }
}

/// Beginnings of paths that exist on one machine only.
fn own_places(root: &Path) -> Vec<String> {
    let mut places = OWN_FILES.map(str::to_owned).to_vec();
    let absolute = root.canonicalize().unwrap_or_default();
    let top = absolute.components().nth(1).map(|top| top.as_os_str().to_string_lossy().into_owned());
    let here = top.filter(|top| !EVERYWHERE.contains(&top.as_str())).map(|top| format!("/{top}/"));
    places.extend(here.filter(|here| !OWN_FILES.contains(&here.as_str())));
    places
}

/// The complaints about one file.
fn check(file: &str, text: &str, own_places: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut complain = |line: usize, what: String| found.push(format!("{file}:{line}: {what}"));
    for (index, line) in text.split('\n').enumerate() {
        let number = index + 1;
        if line.ends_with([' ', '\t', '\r']) {
            complain(number, "white space at the end of the line".to_owned());
        }
        for word in PUT_OFF.iter().filter(|word| has_word(line, word)) {
            complain(number, format!("work that was put off ('{word}')"));
        }
        for word in REAL_TIME.iter().filter(|word| has_word(line, word)) {
            complain(
                number,
                format!("a real-time priority ('{word}'): pin with taskset, and state the load"),
            );
        }
        let lower = line.to_lowercase();
        for (word, instead) in SAY.iter().filter(|(word, _)| lower.contains(word)) {
            complain(number, format!("'{word}': say {instead}"));
        }
        for place in own_places.iter().filter(|place| has_path(line, place)) {
            complain(number, format!("a path of somebody's own machine ('{place}')"));
        }
    }
    if file.ends_with(".md") || DOCUMENTED.iter().any(|folder| file.starts_with(folder)) {
        for (paper, author) in PAPERS.iter().filter(|(_, author)| !text.contains(author)) {
            if let Some(at) = text.lines().position(|line| has_word(line, paper)) {
                complain(at + 1, format!("the paper {paper} without its authors ({author} et al.) and year"));
            }
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        complain(text.lines().count(), "no line end at the end of the file".to_owned());
    }
    let lines = text.lines().count();
    if file.ends_with(".rs") && lines > RUST_LINES_MAX {
        complain(lines, format!("{lines} lines: look for the second thing living in this file"));
    }
    if ["src/lib.rs", "src/main.rs"].iter().any(|root| file.ends_with(root)) && !text.starts_with("//!") {
        complain(1, "a crate begins with what it is for (//!)".to_owned());
    }
    if file.ends_with("/Cargo.toml")
        && text.contains("[package]")
        && !text.contains("[lints]\nworkspace = true")
    {
        complain(1, "a crate takes the workspace's lints ([lints] workspace = true)".to_owned());
    }
    found
}

/// Whether a word stands in a line by itself, not inside another word.
fn has_word(line: &str, word: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(inner) && (word.ends_with('(') || !line[at + word.len()..].starts_with(inner))
    })
}

/// Whether an absolute path begins like this, rather than a part of a longer one.
fn has_path(line: &str, start: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || "_-.~}*".contains(c);
    line.match_indices(start).any(|(at, _)| !line[..at].ends_with(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_is_tidy() {
        let complaints = complaints(&crate::root());
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }

    #[test]
    fn a_page_names_files_that_are_there() {
        let files = ["crates/tsumugi-proto/src/sender/mod.rs", "bpf/receive/answer.h"].map(PathBuf::from);
        let missing = |text: &str| missing_files("page", text, &files).len();
        assert_eq!(missing("`proto/sender/mod.rs` -> `sender/mod.rs`, `receive/answer.h`, `Core::call`"), 0);
        assert_eq!(missing("`crates/tsumugi-proto/src/sender/mod.rs`"), 0);
        assert_eq!(missing("`rail/sender/mod.rs`, `receiver.rs`"), 2);
    }

    #[test]
    fn the_project_is_found() {
        let mut files = Vec::new();
        collect(&crate::root(), &mut files);
        for file in
            ["Makefile", ".ci/run", "xtask/setup.sh", "xtask/src/tidy.rs", "crates/tsumugi-cli/Cargo.toml"]
        {
            assert!(files.contains(&crate::root().join(file)), "{file} would not be checked");
        }
    }

    #[test]
    fn every_rule_bites() {
        let long = "// x\n".repeat(RUST_LINES_MAX + 1);
        let put_off = format!("// {}: later\n", PUT_OFF[0]);
        let unfinished = format!("fn f() {{ {}) }}\n", PUT_OFF[2]);
        let real_time = format!("    {} -f 10 tsumugi compare\n", REAL_TIME[0]);
        let own = format!("let f = \"{}me/f\";\n", OWN_FILES[0]);
        let private = format!("the {}\n", SAY[0].0);
        for (file, text) in [
            ("a.rs", "let a = 1; \n"),
            ("a.md", "a\r\n"),
            ("a.rs", "let a = 1;"),
            ("a.rs", &long),
            ("a.rs", &put_off),
            ("a.rs", &unfinished),
            ("a.md", &real_time),
            ("a.sh", &own),
            ("a.md", &private),
            ("a.md", &format!("as {} has it\n", PAPERS[0].0)),
            ("crates/a/src/lib.rs", "fn f() {}\n"),
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n"),
        ] {
            assert_eq!(
                check(file, text, &own_places(Path::new("/nowhere"))).len(),
                1,
                "{file}: {:?}",
                text.get(..40).unwrap_or(text)
            );
        }
    }

    #[test]
    fn rules_do_not_bite_the_innocent() {
        let word = format!("{}S and MAS{}N, EPO{}EALTIME\n", PUT_OFF[0], PUT_OFF[0], REAL_TIME[0]);
        let path = format!("see https://example.org{}f and a{}b\n", OWN_FILES[0], OWN_FILES[1]);
        for (file, text) in
            [("a.rs", word.as_str()), ("a.md", &path), ("a/src/lib.rs", "//! A.\n"), ("a.rs", "")]
        {
            assert_eq!(check(file, text, &own_places(&crate::root())), Vec::<String>::new());
        }
    }
}
