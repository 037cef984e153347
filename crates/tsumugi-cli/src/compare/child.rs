//! Child processes that never outlive us: killed when dropped, and by the kernel when we are killed.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::CompareError;
use crate::peers::interrupted;

/// Tells a child its parent's process id; see [`die_with_parent`].
const PARENT_VARIABLE: &str = "TSUMUGI_PARENT";

/// How often a waiting parent looks for Ctrl-C: rarely, because it shares the CPUs with what it measures.
const LOOK_UP_MS: u16 = 200;

/// In a process that [`Running::start`] started: asks the kernel to kill it when its parent dies.
pub(crate) fn die_with_parent() {
    let Some(parent) = std::env::var(PARENT_VARIABLE).ok().and_then(|pid| pid.parse::<i32>().ok()) else {
        return;
    };
    let asked = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    // The parent may have died before the kernel was asked.
    if asked.is_ok() && nix::unistd::getppid().as_raw() != parent {
        std::process::exit(1);
    }
}

/// A child process; dropping it kills it.
pub(super) struct Running {
    child: Child,
    command: String,
}

impl Running {
    /// Starts `command`, whose output is read by us. `shown` is the command line as a user would type it.
    pub(super) fn start(mut command: Command, shown: String) -> Result<Running, CompareError> {
        command
            .env(PARENT_VARIABLE, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        match command.spawn() {
            Ok(child) => Ok(Running { child, command: shown }),
            Err(cause) => Err(CompareError::Spawn { command: shown, cause }),
        }
    }

    /// The first line of its output.
    pub(super) fn first_line(&mut self, limit: Duration) -> Result<String, CompareError> {
        let mut line = Vec::new();
        self.read(&mut line, limit, |line| line.contains(&b'\n'))?;
        if !line.contains(&b'\n') {
            return Err(self.failed());
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// All of its output, once it has ended well.
    pub(super) fn output(mut self, limit: Duration) -> Result<Vec<u8>, CompareError> {
        let mut output = Vec::new();
        self.read(&mut output, limit, |_| false)?;
        match self.child.wait() {
            Ok(status) if status.success() => Ok(output),
            _ => Err(self.failed()),
        }
    }

    /// Fails when it has ended, which it should not have.
    pub(super) fn check_running(&mut self) -> Result<(), CompareError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(self.failed()),
        }
    }

    /// The command line.
    pub(super) fn command(&self) -> &str {
        &self.command
    }

    /// Reads its output until `enough` or the end.
    fn read(
        &mut self,
        into: &mut Vec<u8>,
        limit: Duration,
        enough: impl Fn(&[u8]) -> bool,
    ) -> Result<(), CompareError> {
        let start = Instant::now();
        let command = &self.command;
        let spawn = |cause: io::Error| CompareError::Spawn { command: command.clone(), cause };
        let Some(stdout) = self.child.stdout.as_mut() else {
            return Ok(());
        };
        let mut piece = [0; 65_536];
        while !enough(into) {
            if interrupted() {
                return Err(CompareError::Interrupted);
            }
            if start.elapsed() > limit {
                return Err(CompareError::Stuck { command: command.clone(), limit_s: limit.as_secs() });
            }
            let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::from(LOOK_UP_MS)) {
                Ok(0) | Err(nix::Error::EINTR) => continue,
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
    fn failed(&mut self) -> CompareError {
        if interrupted() {
            return CompareError::Interrupted;
        }
        let _ = self.child.kill();
        let status = self.child.wait().map_or("unknown status".to_owned(), |status| status.to_string());
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        CompareError::Child { command: self.command.clone(), status, said: said.trim().to_owned() }
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
        let pid = nix::unistd::Pid::from_raw(child.child.id() as i32);
        let error = child.output(Duration::ZERO).expect_err("stuck");
        assert!(matches!(error, CompareError::Stuck { .. }), "{error}");
        assert_eq!(nix::sys::signal::kill(pid, None), Err(nix::Error::ESRCH));
    }
}
