//! Other processes: copies of this test program, each playing a role.

#![allow(dead_code, reason = "every test program uses its own part")]

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Says which role a copy of this program plays, and with what.
pub(crate) const ROLE: &str = "TSUMUGI_TEST_ROLE";
/// The test that plays the role.
const STAGE: &str = "a_role_of_another_test";
/// Before what a role says. The test harness says things too.
const MARK: &str = "> ";
/// Longest time to wait for something that must come. Only a test that fails waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Another process. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
}

/// What a role says to the test that started it.
pub(crate) fn say(what: impl std::fmt::Display) {
    println!("{MARK}{what}");
}

/// What a role is told by the test that started it. The process ends when the test has ended.
pub(crate) struct Orders(Receiver<String>);

impl Orders {
    /// From now on what the test says is read.
    pub(crate) fn listen() -> Orders {
        let (told, orders) = channel();
        thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if told.send(line).is_err() {
                    return;
                }
            }
            std::process::exit(0);
        });
        Orders(orders)
    }

    /// The next order; waits for it.
    pub(crate) fn next(&self) -> String {
        self.0.recv().expect("the listening thread ends with the process")
    }

    /// The next order, if there is one.
    pub(crate) fn try_next(&self) -> Option<String> {
        self.0.try_recv().ok()
    }
}

/// Waits for ever, without a call into the library.
pub(crate) fn stand_still() -> ! {
    loop {
        thread::sleep(PATIENCE);
    }
}

impl Process {
    /// Starts a role; the words after the first are for it.
    pub(crate) fn start(role: &str) -> Process {
        let program = std::env::current_exe().expect("this program");
        Process::start_by(Command::new(program), role)
    }

    /// As [`Process::start`], of a copy of this program that `wrapper`, a program and its arguments, starts.
    pub(crate) fn start_through(wrapper: &[&str], program: &Path, role: &str) -> Process {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(program);
        Process::start_by(command, role)
    }

    /// As [`Process::start`], by a command that runs a copy of this program.
    pub(crate) fn start_by(mut command: Command, role: &str) -> Process {
        command.args(["--exact", STAGE, "--nocapture", "--test-threads=1"]).env(ROLE, role);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a copy of this program");
        let orders = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (said, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The harness leaves its own line unfinished.
                let Some((_, what)) = line.split_once(MARK) else { continue };
                if said.send(what.to_owned()).is_err() {
                    return;
                }
            }
        });
        Process { child, orders, lines }
    }

    /// Tells it something.
    pub(crate) fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the other process listens");
    }

    /// The next thing that it says.
    pub(crate) fn hear(&mut self) -> String {
        self.hear_within(PATIENCE).expect("the other process says something")
    }

    /// The next thing that it says; `None` when it says nothing for so long.
    pub(crate) fn hear_within(&mut self, patience: Duration) -> Option<String> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("the other process ended: {:?}", self.child.wait()),
        }
    }

    /// The next thing that it says; meanwhile, again and again, does something else.
    pub(crate) fn hear_while(&mut self, mut meanwhile: impl FnMut()) -> String {
        let start = Instant::now();
        loop {
            meanwhile();
            match self.lines.try_recv() {
                Ok(line) => return line,
                Err(_) => assert!(start.elapsed() < PATIENCE, "the other process says nothing"),
            }
        }
    }

    /// The next thing that it says, as a number.
    pub(crate) fn hear_number<T: std::str::FromStr>(&mut self) -> T {
        let line = self.hear();
        line.parse().ok().unwrap_or_else(|| panic!("'{line}' is not the number that was expected"))
    }

    /// Sends a signal. After SIGSTOP it waits until the process stands still: on another CPU it may run on for a moment.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("our own child can be sent a signal");
        if signal == Signal::STOP {
            // It stays to be waited for when it ends.
            waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT).expect("it stops");
        }
    }

    /// Kills it as nothing can prevent, and sees it gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child can be waited for");
    }

    /// Waits until it has been killed, by itself.
    pub(crate) fn see_killed(&mut self) {
        let status = self.child.wait().expect("our own child can be waited for");
        assert!(
            std::os::unix::process::ExitStatusExt::signal(&status) == Some(Signal::KILL.as_raw()),
            "{status}"
        );
    }

    /// Waits for its good end; meanwhile, again and again, does something else.
    pub(crate) fn finish_while(mut self, mut meanwhile: impl FnMut()) {
        let start = Instant::now();
        let status = loop {
            meanwhile();
            if let Some(status) = self.child.try_wait().expect("our own child can be waited for") {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "the other process does not end");
            thread::sleep(Duration::from_millis(1));
        };
        assert!(status.success(), "the other process: {status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; both are no harm then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
