//! Running iproute2 and ethtool.
//!
//! They are called instead of speaking netlink because they know every detail of a dozen link and queue
//! types, are on every machine that has a network, and what they are told can be typed in by hand.

use crate::error::{Context, LabError};
use crate::names;
use crate::sys;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Program and Debian package of everything a lab may call.
const TOOLS: [(&str, &str); 4] =
    [("ip", "iproute2"), ("tc", "iproute2"), ("ethtool", "ethtool"), ("nft", "nftables")];

/// Where a program is. System administration's directories are looked at even if PATH lacks them.
pub fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|folder| folder.join(tool)).find(|file| file.is_file())
}

/// Calls programs that die with us, and that hold the labs' lock for as long as they live. So whoever gets
/// the lock after we were killed knows that nothing is being made any more.
pub(crate) struct Tools {
    lock: RawFd,
}

impl Tools {
    pub(crate) fn new(lock: &File) -> Tools {
        Tools { lock: lock.as_raw_fd() }
    }

    /// Fails if one of these programs is not installed.
    pub(crate) fn require(tools: &[&str]) -> Result<(), LabError> {
        match TOOLS.iter().find(|(tool, _)| tools.contains(tool) && find(tool).is_none()) {
            Some(&(tool, package)) => Err(LabError::ToolMissing { tool, package }),
            None => Ok(()),
        }
    }

    /// Lines for `ip`, in a namespace or (`None`) in the one we are in.
    pub(crate) fn ip(&self, namespace: Option<&str>, lines: &[String]) -> Result<(), LabError> {
        self.batch("ip", namespace, lines)
    }

    /// Lines for `tc`, in a namespace.
    pub(crate) fn tc(&self, namespace: &str, lines: &[String]) -> Result<(), LabError> {
        self.batch("tc", Some(namespace), lines)
    }

    /// Lines for `nft`, in a namespace.
    pub(crate) fn nft(&self, namespace: &str, lines: &[String]) -> Result<(), LabError> {
        let mut command = self.command("nft", Some(namespace))?;
        command.args(["-f", "-"]);
        self.finish(command, Some(namespace), &(lines.join("\n") + "\n")).map(drop)
    }

    /// What `ip` prints in a namespace.
    pub(crate) fn ip_query(&self, namespace: &str, arguments: &[&str]) -> Result<String, LabError> {
        self.query("ip", namespace, arguments)
    }

    /// Runs `ethtool` inside a namespace.
    pub(crate) fn ethtool(&self, namespace: &str, arguments: &[&str]) -> Result<String, LabError> {
        self.query("ethtool", namespace, arguments)
    }

    fn query(&self, tool: &'static str, namespace: &str, arguments: &[&str]) -> Result<String, LabError> {
        let mut command = self.command(tool, Some(namespace))?;
        command.args(arguments);
        self.finish(command, Some(namespace), "")
    }

    fn batch(&self, tool: &'static str, namespace: Option<&str>, lines: &[String]) -> Result<(), LabError> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut command = self.command(tool, namespace)?;
        command.args(["-batch", "-"]);
        self.finish(command, namespace, &(lines.join("\n") + "\n")).map(drop)
    }

    /// A program that will run in that namespace. Entering it is ours, not left to `ip -n`, which needs a
    /// mount namespace for it and is several times slower.
    fn command(&self, tool: &'static str, namespace: Option<&str>) -> Result<Command, LabError> {
        Tools::require(&[tool])?;
        let path = namespace.map(names::netns_path);
        let handle = path.map(|path| File::open(&path).context("open the namespace", path)).transpose()?;
        let mut command = Command::new(find(tool).unwrap_or_else(|| PathBuf::from(tool)));
        let (lock, parent) = (self.lock, std::process::id());
        let tied = move || {
            sys::die_with_parent(parent)?;
            // SAFETY: the lock's file outlives this value, and so the child has it.
            fcntl_setfd(unsafe { BorrowedFd::borrow_raw(lock) }, FdFlags::empty())?;
            if let Some(handle) = &handle {
                move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Network))?;
            }
            Ok(())
        };
        // SAFETY: the closure runs between fork and exec and makes bare system calls only, on descriptors that
        // it owns or that outlive this value; it neither allocates nor takes a lock.
        unsafe { command.pre_exec(tied) };
        Ok(command)
    }

    /// Runs it with that input and returns its output, or what it complained about.
    fn finish(&self, mut command: Command, namespace: Option<&str>, input: &str) -> Result<String, LabError> {
        let program = PathBuf::from(command.get_program());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("run", &program)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that stops at a bad line closes its input early; its own message is the better one.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output().context("wait for", &program)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let complaint = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        Err(LabError::Tool { command: describe(&command, namespace, input, &complaint), output: complaint })
    }
}

/// The command as one would type it, with the failing line where a batch names it ("Command failed -:3").
fn describe(command: &Command, namespace: Option<&str>, input: &str, complaint: &str) -> String {
    let program = PathBuf::from(command.get_program());
    let mut words = match namespace {
        Some(namespace) => ["ip", "netns", "exec", namespace].map(str::to_owned).to_vec(),
        None => Vec::new(),
    };
    words.push(program.file_name().unwrap_or_default().to_string_lossy().into_owned());
    let failing = complaint
        .rsplit_once("Command failed -:")
        .and_then(|(_, number)| number.trim().parse::<usize>().ok())
        .and_then(|number| input.lines().nth(number.saturating_sub(1)));
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    if let Some(line) = failing {
        words.retain(|word| word != "-batch" && word != "-");
        words.push(line.to_owned());
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_batch_names_its_line() {
        let mut command = Command::new("/usr/sbin/ip");
        command.args(["-batch", "-"]);
        let complaint = "Cannot find device \"b\"; Command failed -:2";
        let (lines, namespace) = ("link set a up\nlink set b up\n", Some("x"));
        assert_eq!(describe(&command, namespace, lines, complaint), "ip netns exec x ip link set b up");
        assert_eq!(describe(&command, None, lines, "odd"), "ip -batch -");
    }
}
