//! `tsumugi lab ssh`: looks like ssh to a launcher, and starts the command in a node.

use super::complain;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use tsumugi_lab::{Lab, LabError};

pub(super) const HELP: &str = "\
As ssh does, this joins the command's words with spaces and gives them to a shell in the node, and returns its \
exit code, or 255 if the node cannot be reached. Options of ssh are accepted and ignored, except for -n \
(no input) and -f (to the background).

Every lab has a ready-made launcher that calls this for it:
  mpiexec -launcher ssh -launcher-exec /run/tsumugi/lab/lab/ssh -hosts n0,n1 …     (MPICH)
  mpirun --mca plm_rsh_agent /run/tsumugi/lab/lab/ssh --host n0,n1 …               (Open MPI)";

/// ssh's own code for a failure that is not the command's.
const SSH_FAILED: u8 = 255;
/// ssh's options that take a value (ssh(1), OpenSSH 9).
const WITH_VALUE: &[u8] = b"BbcDEeFIiJLlmOoPpQRSWw";

/// What a launcher passes.
#[derive(Args)]
pub(super) struct Ssh {
    /// The lab's name; inside a node, the lab of that node.
    #[arg(long, env = tsumugi_lab::LAB_VARIABLE, hide_env = true, default_value = super::DEFAULT_NAME)]
    name: String,
    /// [ssh's options] HOST COMMAND…
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "HOST COMMAND")]
    words: Vec<OsString>,
}

/// What ssh's arguments say.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    host: String,
    /// For the shell; `None` asks for an interactive one.
    command: Option<OsString>,
    no_input: bool,
    background: bool,
}

/// Reads arguments as ssh does: options (bundled or not, values attached or not) before and after the host,
/// then the command.
fn parse(words: &[OsString]) -> Result<Call, String> {
    let mut call = Call { host: String::new(), command: None, no_input: false, background: false };
    let mut rest = words.iter();
    let mut options_ended = false;
    while let Some(word) = rest.as_slice().first() {
        let bytes = word.as_bytes();
        if !options_ended && bytes == b"--" {
            options_ended = true;
            rest.next();
        } else if !options_ended && bytes.len() > 1 && bytes[0] == b'-' {
            rest.next();
            for (index, letter) in bytes.iter().enumerate().skip(1) {
                call.no_input |= *letter == b'n';
                call.background |= *letter == b'f';
                if WITH_VALUE.contains(letter) {
                    // The value is the rest of this word, or the next word.
                    if index + 1 == bytes.len() && rest.next().is_none() {
                        return Err(format!("option -{} lacks its value", *letter as char));
                    }
                    break;
                }
            }
        } else if call.host.is_empty() {
            rest.next();
            let host = word.to_string_lossy();
            // USER@HOST: whoever we are is who runs it.
            call.host = host.rsplit_once('@').map_or(host.as_ref(), |(_, host)| host).to_owned();
        } else {
            break;
        }
    }
    if call.host.is_empty() {
        return Err("no host is given".to_owned());
    }
    let command: Vec<&[u8]> = rest.map(|word| word.as_bytes()).collect();
    call.command = (!command.is_empty()).then(|| OsString::from_vec(command.join(&b' ')));
    Ok(call)
}

pub(super) fn run(options: Ssh) -> ExitCode {
    let call = match parse(&options.words) {
        Ok(call) => call,
        Err(reason) => {
            eprintln!("tsumugi lab ssh: {reason}: give [OPTIONS] HOST COMMAND…");
            return ExitCode::from(SSH_FAILED);
        }
    };
    let mut shell = match shell(&options.name, &call) {
        Ok(shell) => shell,
        Err(error) => {
            complain(&error);
            return ExitCode::from(SSH_FAILED);
        }
    };
    let error = if call.background {
        match shell.spawn() {
            Ok(_) => return ExitCode::SUCCESS,
            Err(error) => error,
        }
    } else {
        // Replaces this process, so that signals and the exit code are the command's own.
        shell.exec()
    };
    eprintln!("tsumugi lab ssh: cannot start a shell on {}: {error}", call.host);
    ExitCode::from(SSH_FAILED)
}

fn shell(lab: &str, call: &Call) -> Result<Command, LabError> {
    let lab = Lab::open(lab)?;
    let mut shell = lab.command(lab.find_node(&call.host)?, "/bin/sh")?;
    if let Some(command) = &call.command {
        shell.arg(OsStr::new("-c")).arg(command);
    }
    if call.no_input || call.background {
        shell.stdin(Stdio::null());
    }
    Ok(shell)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn call(host: &str, command: &str) -> Call {
        let command = (!command.is_empty()).then(|| command.into());
        Call { host: host.into(), command, no_input: false, background: false }
    }

    #[test]
    fn launchers_arguments_are_understood() {
        for (line, expected) in [
            ("n1 hostname", call("n1", "hostname")),
            (
                "-x n1 \"/opt/hydra_bmcd_proxy\" --control-port n0:4000 --rmk user -x",
                call("n1", "\"/opt/hydra_bmcd_proxy\" --control-port n0:4000 --rmk user -x"),
            ),
            ("-x -q -o StrictHostKeyChecking=no n1 a b", call("n1", "a b")),
            ("-xqoBatchMode=yes -p22 -l root root@n1 -x -- true -n", call("n1", "true -n")),
            ("n1", call("n1", "")),
        ] {
            assert_eq!(parse(&words(line)), Ok(expected), "{line}");
        }
        let quiet = Call { no_input: true, background: true, ..call("n2", "sleep 1") };
        assert_eq!(parse(&words("-nf n2 sleep 1")), Ok(quiet));
        for line in ["-x", "-o", "n1 -o", "--", ""] {
            assert!(parse(&words(line)).is_err(), "{line:?}");
        }
    }
}
