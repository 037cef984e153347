//! The commands that a page shows.

use std::path::Path;

/// A command as a page shows it.
pub(crate) struct Shown {
    /// The page and the line in it, for complaints.
    pub(crate) place: String,
    /// What is typed: one line, or several of which the shell reads the later ones as the first one's input or continuation.
    pub(crate) line: String,
    /// Whether it stands in running text or a table, and may be less than a whole command.
    pub(crate) is_inline: bool,
}

/// Programs with which a command in running text begins.
const PROGRAMS: [&str; 5] = ["tsumugi", "tsumugi-mpiexec", "sudo", "cargo", "make"];

/// Every page for users, with its name.
pub(crate) fn pages(root: &Path) -> Vec<(String, String)> {
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        docs.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect();
    files.push(root.join("README.md"));
    files.sort();
    let name = |path: &Path| path.strip_prefix(root).unwrap().display().to_string();
    files.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// The commands of a page, from top to bottom.
pub(crate) fn commands(page: &str, text: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    // Of the fence that the line is within, the language; whether the line before was blank; whether the block goes on.
    let (mut fence, mut is_blank, mut in_block) = (None, true, false);
    let mut ends_with: Option<String> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let show = |line: &str, is_inline| Shown {
            place: format!("{page}:{number}"),
            line: line.to_owned(),
            is_inline,
        };
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_none() { Some(language.to_owned()) } else { None };
            continue;
        }
        let depth = line.len() - line.trim_start().len();
        in_block = fence.is_none() && depth >= 4 && (is_blank || in_block);
        is_blank = line.trim().is_empty();
        if is_blank || fence.as_ref().is_some_and(|language| !language.is_empty()) {
            continue;
        }
        if fence.is_none() && !in_block {
            let spans = line.split('`').skip(1).step_by(2);
            let is_command = |span: &&str| {
                let mut words = span.split(' ').skip_while(|word| word.contains('='));
                words.next().is_some_and(|program| PROGRAMS.contains(&program)) && words.next().is_some()
            };
            found.extend(spans.filter(is_command).map(|span| show(span, true)));
            continue;
        }
        let line = without_comment(line.trim());
        match found.last_mut() {
            // The rest of a here-document, or of a line that ends with a backslash.
            Some(last) if ends_with.is_some() || last.line.ends_with('\\') => {
                last.line = format!("{}\n{line}", last.line);
                ends_with = ends_with.filter(|end| *end != line);
            }
            _ if line.is_empty() => {}
            _ => {
                ends_with = line.split_once("<<").map(|(_, word)| word.trim().to_owned());
                found.push(show(line, false));
            }
        }
    }
    found
}

/// A line without what it says of itself: `# …`, or what stands two spaces behind it.
fn without_comment(line: &str) -> &str {
    let line = if line.starts_with('#') { "" } else { line.split(" # ").next().unwrap_or(line) };
    let says = line.match_indices("  ").find(|(at, _)| {
        let rest = line[*at..].trim_start();
        !rest.starts_with(['-', '.'])
    });
    says.map_or(line, |(at, _)| &line[..at]).trim()
}
