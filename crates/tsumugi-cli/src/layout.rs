//! Lays out what a command's help explains, so that tables stay tables where lines are short.

use clap::Command;

/// Columns of a terminal that nobody has made wider.
pub(crate) const TERMINAL: usize = 80;
/// Columns of such a terminal that a manual page leaves to its text.
pub(crate) const MANUAL_PAGE: usize = 71;
/// What is indented and has so many spaces in it is a name and its explanation.
const GAP: &str = "  ";

/// The command, whose help and that of its subcommands fit so many columns.
pub(crate) fn fitted(command: Command, columns: usize) -> Command {
    let command = match command.get_after_help().map(|text| lay_out(&text.to_string(), columns)) {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(|subcommand| fitted(subcommand, columns))
}

/// Breaks lines that are too long. The rest of an explanation goes on in the column in which it begins.
fn lay_out(text: &str, columns: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| broken(line, columns)).collect();
    lines.join("\n")
}

fn broken(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    let (name, explanation) = parted(line);
    let column = name.chars().count();
    let mut broken = name.to_owned();
    let mut at = column;
    for (number, word) in explanation.split_whitespace().enumerate() {
        let chars = word.chars().count();
        if number > 0 && at + 1 + chars > columns {
            broken = broken + "\n" + &" ".repeat(column);
            at = column;
        } else if number > 0 {
            broken.push(' ');
            at += 1;
        }
        broken.push_str(word);
        at += chars;
    }
    broken
}

/// A line up to where its explanation begins, and the explanation. Of a line that has no name that is its indentation.
fn parted(line: &str) -> (&str, &str) {
    let indentation = line.len() - line.trim_start().len();
    let name = if indentation == 0 { None } else { line[indentation..].find(GAP) };
    let begins = name.map_or(indentation, |gap| {
        let gap = indentation + gap;
        line.len() - line[gap..].trim_start().len()
    });
    line.split_at(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_goes_on_in_its_column() {
        let words = "word ".repeat(20);
        let text = format!("Short.\n\n  two words   {words}\n  `tsumugi` {words}");
        let laid_out = lay_out(&text, 80);
        let lines: Vec<&str> = laid_out.lines().collect();
        let of = |count: usize| ["word"; 20][..count].join(" ");
        assert_eq!(lines[..2], ["Short.", ""]);
        assert_eq!(lines[2], format!("  two words   {}", of(13)));
        assert_eq!(lines[3], format!("              {}", of(7)));
        assert_eq!(lines[4], format!("  `tsumugi` {}", of(13)));
        assert_eq!(lines[5], format!("  {}", of(7)));
    }

    #[test]
    fn a_word_that_is_too_long_has_a_line() {
        let path = "/".repeat(100);
        assert_eq!(lay_out(&format!("  name  {path} more"), 80), format!("  name  {path}\n        more"));
    }
}
