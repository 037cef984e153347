//! How the commands read their command lines.

use crate::layout;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Error, FromArgMatches};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

/// The version, with the commit that it is built from where that is known.
pub(crate) const VERSION: &str = env!("TSUMUGI_VERSION");

/// Reads this process's command line; wrong usage ends it with 2.
pub(crate) fn parse<C: CommandFactory + FromArgMatches>() -> C {
    let words: Vec<OsString> = std::env::args_os().collect();
    let matches = command::<C>().try_get_matches_from(&words);
    let matches = matches.unwrap_or_else(|error| better(error, &words, command::<C>()).exit());
    C::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The command as people meet it.
fn command<C: CommandFactory>() -> Command {
    layout::fitted(with_negative_numbers(C::command()), layout::TERMINAL)
}

/// Its options take negative numbers, so that who knows what is expected says what is wrong with them.
fn with_negative_numbers(command: Command) -> Command {
    let is_option = |arg: &clap::Arg| !arg.is_positional() && arg.get_action().takes_values();
    let takes = |arg: clap::Arg| if is_option(&arg) { arg.allow_negative_numbers(true) } else { arg };
    command.mut_args(takes).mut_subcommands(with_negative_numbers)
}

/// What is wrong with a value that begins as a negative number, and that clap has taken for an option: `-1K`.
fn better(error: Error, words: &[OsString], command: Command) -> Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let mut joined: Vec<OsString> = Vec::new();
    for word in words {
        let is_number =
            word.as_bytes().starts_with(b"-") && word.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        match joined.last_mut().filter(|option| is_number && option.as_bytes().starts_with(b"--")) {
            Some(option) => {
                option.push("=");
                option.push(word);
            }
            None => joined.push(word.clone()),
        }
    }
    // It is only asked what it says to that.
    command.try_get_matches_from(joined).err().unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ContextKind;

    /// Calls `look` with every command that people type, and the words that lead to it.
    fn walk(command: &Command, words: &mut Vec<String>, look: &mut dyn FnMut(&Command, &[String])) {
        words.push(command.get_name().to_owned());
        look(command, words);
        for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
            walk(subcommand, words, look);
        }
        words.pop();
    }

    fn every_command(look: &mut dyn FnMut(&Command, &[String])) {
        for command in [command::<crate::Arguments>(), command::<crate::mpiexec::Arguments>()] {
            walk(&command, &mut Vec::new(), look);
        }
    }

    #[test]
    fn negative_numbers_are_refused_by_who_knows_what_is_expected() {
        let mut numeric = 0;
        every_command(&mut |command, words| {
            let options = command.get_arguments().filter(|arg| arg.get_action().takes_values());
            for option in options.filter_map(|arg| Some(format!("--{}", arg.get_long()?))) {
                let mut whole = match words[0].as_str() {
                    "tsumugi" => super::command::<crate::Arguments>(),
                    _ => super::command::<crate::mpiexec::Arguments>(),
                };
                let mut refused = |value: &str| {
                    let line = words.iter().map(String::as_str).chain([option.as_str(), value]);
                    let error = whole.try_get_matches_from_mut(line).err()?;
                    let is_of_value =
                        matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue);
                    assert_ne!(
                        error.kind(),
                        ErrorKind::UnknownArgument,
                        "{words:?} {option} {value}: {error}"
                    );
                    assert!(!is_of_value || error.get(ContextKind::InvalidArg).is_some(), "{error}");
                    is_of_value.then(|| error.to_string())
                };
                let is_number =
                    ["1", "2", "256", "1500", "1M", "1%"].iter().any(|value| refused(value).is_none());
                if !is_number || refused("word").is_none() {
                    continue;
                }
                numeric += 1;
                let said = refused("-1").unwrap_or_else(|| panic!("{words:?} {option} takes -1"));
                assert!(said.contains(&option) && said.contains("-1"), "{words:?} {option}: {said}");
                assert!(!said.contains("invalid digit"), "{words:?} {option}: {said}");
            }
        });
        assert!(numeric > 60, "{numeric} options with numbers");
    }

    #[test]
    fn every_help_is_about_its_command() {
        every_command(&mut |command, words| {
            let help = command.clone().render_long_help().to_string();
            let name = words.join(" ");
            // Examples are of this command, unless it is one of several.
            if command.has_subcommands() || !words.iter().any(|word| word == "perf" || word == "eval") {
                return;
            }
            let examples = help.lines().filter(|line| line.starts_with("  ") && line.contains("tsumugi "));
            let is_called = |line: &&str| line.contains("tsumugi perf ") || line.contains("tsumugi eval ");
            for line in examples.filter(is_called).filter(|line| !line.contains('`')) {
                assert!(line.contains(&format!("{name} ")) || line.ends_with(&name), "{name}: {line}");
            }
            assert!(help.contains("Examples:"), "{name}");
        });
    }

    #[test]
    fn examples_are_not_broken() {
        every_command(&mut |command, words| {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = help.lines().collect();
            let is_example = |line: &str| line.contains("tsumugi ");
            let indentation = |line: &str| line.len() - line.trim_start().len();
            for pair in lines.windows(2).filter(|pair| pair[0].starts_with("  ") && is_example(pair[0])) {
                // Within quotes a shell takes it for the same.
                let is_quoted = pair[0].matches('\'').count() % 2 == 1;
                let is_next = indentation(pair[1]) != indentation(pair[0]) || is_example(pair[1]);
                assert!(is_quoted || is_next, "{words:?}: {pair:#?}");
            }
        });
    }

    #[test]
    fn the_version_begins_with_the_packages() {
        assert!(VERSION.starts_with(env!("CARGO_PKG_VERSION")), "{VERSION}");
    }
}
