//! What is made of the command line's own descriptions: manual pages and completions.

use crate::layout;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Which shell.
#[derive(Args)]
#[command(after_help = "Examples:
  tsumugi completions bash > ~/.local/share/bash-completion/completions/tsumugi
  tsumugi completions zsh > ~/.zfunc/_tsumugi
  tsumugi completions fish > ~/.config/fish/completions/tsumugi.fish")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

/// Where to.
#[derive(Args)]
pub(crate) struct ManPages {
    /// The folder; made if it is not there.
    folder: PathBuf,
}

pub(crate) fn completions(arguments: &Completions) -> tsumugi_measure::CommandResult {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Arguments::command(), "tsumugi", &mut text);
    tsumugi_measure::output::output().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The command lines of `tsumugi` and `tsumugi-mpiexec`, as clap knows them.
#[must_use]
pub fn commands() -> [clap::Command; 2] {
    [crate::Arguments::command(), crate::mpiexec::Arguments::command()]
}

/// A page for each command, and for each of its subcommands that is shown.
pub(crate) fn man_pages(arguments: &ManPages) -> tsumugi_measure::CommandResult {
    fs::create_dir_all(&arguments.folder)?;
    for command in commands() {
        let mut command = layout::fitted(command, layout::MANUAL_PAGE);
        // So that subcommands have the options of all, and names like `tsumugi-up`.
        command.build();
        write_pages(&arguments.folder, &command)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write_pages(folder: &Path, command: &clap::Command) -> io::Result<()> {
    let is_shown = |one: &&clap::Command| !one.is_hide_set() && one.get_name() != "help";
    for subcommand in command.get_subcommands().filter(is_shown) {
        write_pages(folder, subcommand)?;
    }
    let page = clap_mangen::Man::new(command.clone());
    page.render(&mut fs::File::create(folder.join(page.get_filename()))?)
}
