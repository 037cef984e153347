//! Child processes that never outlive us: killed when dropped, and by the kernel when we are killed.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::Timespec;

use crate::interrupt::interrupted;
use crate::{LAB_VARIABLE, Lab, LabError};
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Tells a child its parent's process id; see [`die_with_parent`].
const PARENT_VARIABLE: &str = "TSUMUGI_PARENT";

/// How often a waiting parent looks for Ctrl-C: rarely, because it shares the CPUs with what it measures.
const LOOK_UP: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Whether this process was started by [`Running::start`], or in a node of a lab.
pub fn has_parent() -> bool {
    is_part() || std::env::var_os(LAB_VARIABLE).is_some()
}

/// Whether this process was started by [`Running::start`]: another command tells its user what it does.
pub fn is_part() -> bool {
    std::env::var_os(PARENT_VARIABLE).is_some()
}

/// In a process that [`Running::start`] started: asks the kernel to kill it when its parent dies.
pub fn die_with_parent() {
    let Some(parent) = std::env::var(PARENT_VARIABLE).ok().and_then(|pid| pid.parse::<i32>().ok()) else {
        return;
    };
    let asked = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // The parent may have died before the kernel was asked.
    if asked.is_ok() && Pid::as_raw(rustix::process::getppid()) != parent {
        std::process::exit(1);
    }
}

/// Why a child process is of no use.
#[derive(Debug, Error)]
pub enum ChildError {
    /// Nobody's fault: Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// It could not be started, or listened to.
    #[error("cannot run `{command}`: {cause}")]
    Spawn {
        /// As a user would type it.
        command: String,
        /// What the system says.
        cause: io::Error,
    },
    /// The node could not be entered.
    #[error("cannot run `{command}` in the lab: {cause}")]
    Enter {
        /// As a user would type it.
        command: String,
        /// What the lab says.
        cause: LabError,
    },
    /// It ended, badly or too early.
    #[error("`{command}` failed ({status}): {said}")]
    Failed {
        /// As a user would type it.
        command: String,
        /// How it ended.
        status: String,
        /// What it wrote to standard error.
        said: String,
    },
    /// It takes too long.
    #[error("`{command}` has not ended within {limit_s} s")]
    Stuck {
        /// As a user would type it.
        command: String,
        /// What it had, in seconds.
        limit_s: u64,
    },
    /// Its output is not JSON of the kind that was asked for.
    #[error("`{command}` printed what is not a measurement: {cause}")]
    Unreadable {
        /// As a user would type it.
        command: String,
        /// What is wrong with it.
        cause: serde_json::Error,
    },
}

/// A child process; dropping it kills it.
pub struct Running {
    child: Child,
    command: String,
    /// What came together with the first line.
    ahead: Vec<u8>,
}

impl Running {
    /// Starts this program with other arguments, here or in a node of a lab.
    pub fn ours(node: Option<(&Lab, usize)>, arguments: &[String]) -> Result<Running, ChildError> {
        let shown = format!("tsumugi {}", arguments.join(" "));
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(cause) => return Err(ChildError::Spawn { command: shown, cause }),
        };
        let mut command = match node.map(|(lab, node)| lab.command(node, &program)) {
            None => Command::new(&program),
            Some(Ok(command)) => command,
            Some(Err(cause)) => return Err(ChildError::Enter { command: shown, cause }),
        };
        command.args(arguments);
        Running::start(command, shown)
    }

    /// Starts `command`, whose output is read by us. `shown` is the command line as a user would type it.
    pub fn start(mut command: Command, shown: String) -> Result<Running, ChildError> {
        command
            .env(PARENT_VARIABLE, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        match command.spawn() {
            Ok(child) => Ok(Running { child, command: shown, ahead: Vec::new() }),
            Err(cause) => Err(ChildError::Spawn { command: shown, cause }),
        }
    }

    /// The first line of its output.
    pub fn first_line(&mut self, limit: Duration) -> Result<String, ChildError> {
        let mut line = Vec::new();
        self.read(&mut line, limit, |line| line.contains(&b'\n'))?;
        let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
            return Err(self.failed());
        };
        self.ahead = line.split_off(end + 1);
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// All of its output, once it has ended well.
    pub fn output(mut self, limit: Duration) -> Result<Vec<u8>, ChildError> {
        let mut output = std::mem::take(&mut self.ahead);
        self.read(&mut output, limit, |_| false)?;
        match self.child.wait() {
            Ok(status) if status.success() => Ok(output),
            _ => Err(self.failed()),
        }
    }

    /// All of its output, once it has ended well, as JSON.
    pub fn json<T: DeserializeOwned>(self, limit: Duration) -> Result<T, ChildError> {
        let command = self.command.clone();
        let output = self.output(limit)?;
        serde_json::from_slice(&output).map_err(|cause| ChildError::Unreadable { command, cause })
    }

    /// Fails when it has ended, which it should not have.
    pub fn check_running(&mut self) -> Result<(), ChildError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(self.failed()),
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// The command line.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Reads its output until `enough` or the end.
    fn read(
        &mut self,
        into: &mut Vec<u8>,
        limit: Duration,
        enough: impl Fn(&[u8]) -> bool,
    ) -> Result<(), ChildError> {
        let start = Instant::now();
        let command = &self.command;
        let spawn = |cause: io::Error| ChildError::Spawn { command: command.clone(), cause };
        let Some(stdout) = self.child.stdout.as_mut() else {
            return Ok(());
        };
        let mut piece = [0; 65_536];
        while !enough(into) {
            if interrupted() {
                return Err(ChildError::Interrupted);
            }
            if start.elapsed() > limit {
                return Err(ChildError::Stuck { command: command.clone(), limit_s: limit.as_secs() });
            }
            match poll(&mut [PollFd::new(&*stdout, PollFlags::IN)], Some(&LOOK_UP)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(spawn(error.into())),
            }
            match stdout.read(&mut piece).map_err(spawn)? {
                0 => break,
                count => into.extend_from_slice(&piece[..count]),
            }
        }
        Ok(())
    }

    /// What it said when it failed.
    fn failed(&mut self) -> ChildError {
        if interrupted() {
            return ChildError::Interrupted;
        }
        let _ = self.child.kill();
        let status = self.child.wait().map_or("unknown status".to_owned(), |status| status.to_string());
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        ChildError::Failed { command: self.command.clone(), status, said: said.trim().to_owned() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Harmless when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Running::start(command, format!("sh -c '{script}'")).expect("a shell")
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn output_of_a_good_child() {
        assert_eq!(shell("echo one; echo two").output(LONG).expect("output"), b"one\ntwo\n");
        assert_eq!(shell("echo one; sleep 1000").first_line(LONG).expect("a line"), "one");
        let mut child = shell("printf 'one\\ntwo\\nthree\\n'");
        assert_eq!(child.first_line(LONG).expect("a line"), "one");
        assert_eq!(child.output(LONG).expect("the rest"), b"two\nthree\n");
    }

    #[test]
    fn what_is_no_measurement_is_said_to_be_none() {
        assert_eq!(shell("echo '[1, 2]'").json::<Vec<u8>>(LONG).expect("numbers"), [1, 2]);
        let error = shell("echo hello").json::<Vec<u8>>(LONG).expect_err("no JSON").to_string();
        assert!(error.contains("echo hello") && error.contains("not a measurement"), "{error}");
    }

    #[test]
    fn a_bad_child_is_quoted() {
        let error = shell("echo no luck >&2; exit 3").output(LONG).expect_err("it failed").to_string();
        assert!(error.contains("no luck") && error.contains('3'), "{error}");
        let error = shell("exit 0").first_line(LONG).expect_err("no line").to_string();
        assert!(error.contains("exit 0"), "{error}");
    }

    #[test]
    fn a_child_that_should_run_and_does_not_is_quoted() {
        let mut child = shell("sleep 1000");
        assert!(child.check_running().is_ok());
        let mut child = shell("echo gone >&2; exit 4");
        child.child.wait().expect("it ends");
        let error = child.check_running().expect_err("it has ended").to_string();
        assert!(error.contains("gone") && error.contains('4'), "{error}");
    }

    #[test]
    fn a_stuck_child_is_given_up_and_killed() {
        let child = shell("sleep 1000");
        let pid = Pid::from_child(&child.child);
        let error = child.output(Duration::ZERO).expect_err("stuck");
        assert!(matches!(error, ChildError::Stuck { .. }), "{error}");
        assert_eq!(rustix::process::test_kill_process(pid), Err(Errno::SRCH));
    }
}
