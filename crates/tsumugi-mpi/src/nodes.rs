//! The nodes of a job, and whether they have what it takes.

use crate::installation::{Installation, Vendor};
use crate::provider;
use crate::shell::quoted;
use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tsumugi_wire::limits::VERSION_MARK;

/// Longest that a node may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// How many nodes are asked at a time.
const AT_A_TIME: usize = 32;
/// What a line of a node's answer begins with; shells of users print other lines.
const ANSWER: &str = "tsumugi-node ";

/// A file of hosts that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the file of hosts {}: {cause}", path.display())]
pub struct HostFileError {
    path: PathBuf,
    cause: std::io::Error,
}

/// What the arguments of a launcher say about where it starts ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Hosts other than this one.
    pub hosts: BTreeSet<String>,
    /// What it starts processes there with, if a question can be asked by it.
    pub agent: Option<Agent>,
}

/// What starts a process on another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agent {
    /// Something like ssh, with arguments of its own behind blanks: a shell of the node gets the words that follow the host.
    Shell(OsString),
    /// Slurm's `srun`, within an allocation.
    Srun(OsString),
}

/// What is wrong with a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// No process can be started there.
    #[error(
        "`{agent} {host} true` does not work ({why}); it must, without asking for a password: is the host up, its name right, and your key there (`ssh-copy-id {host}`)?"
    )]
    Unreachable {
        /// Its name.
        host: String,
        /// What starts processes there.
        agent: String,
        /// What that said.
        why: String,
    },
    /// The provider, or the PMPI library, is not where it is here.
    #[error("{host} has no {}; install Tsumugi there as here, or share the folder", .file.display())]
    NoProvider {
        /// Its name.
        host: String,
        /// Where it is here.
        file: PathBuf,
    },
    /// It is another there.
    #[error(
        "{host} has a {} that speaks version {theirs} of the protocol, and the one here speaks {ours}; install the same version of Tsumugi on all nodes",
        name_of(file)
    )]
    OtherVersion {
        /// Its name.
        host: String,
        /// Where it is here.
        file: PathBuf,
        /// The version there; 0 if the file has none.
        theirs: u32,
        /// The version here.
        ours: u32,
    },
    /// The MPI is not where it is here.
    #[error("{host} has no {}; install the same MPI there, in the same folder, or share the folder", .program.display())]
    NoMpi {
        /// Its name.
        host: String,
        /// The program of the MPI that starts ranks on a node.
        program: PathBuf,
    },
}

/// What a file of ours is called where nodes are spoken of.
fn name_of(file: &Path) -> &'static str {
    if file.ends_with(provider::COLLECTIVES) { "PMPI library" } else { "provider" }
}

impl Named {
    /// What a launcher's arguments and the environment say.
    ///
    /// # Errors
    /// A file of hosts cannot be read.
    pub fn in_arguments(arguments: &[OsString]) -> Result<Named, HostFileError> {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let agents = [
            "HYDRA_LAUNCHER_EXEC",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC",
            "PRTE_MCA_plm_ssh_agent",
            "OMPI_MCA_plm_rsh_agent",
        ];
        let agent = agents.into_iter().find_map(variable).unwrap_or_else(|| "ssh".into());
        let mut named = Named { hosts: BTreeSet::new(), agent: Some(Agent::Shell(agent)) };
        // A batch system starts the ranks itself.
        let of_slurm = variable("SLURM_JOB_NODELIST");
        if of_slurm.is_some() {
            named.agent = Some(Agent::Srun("srun".into()));
        } else if ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"].into_iter().any(|name| variable(name).is_some())
        {
            named.agent = None;
        }
        if let Some(file) = variable("HYDRA_HOST_FILE") {
            named.add_file(Path::new(&file))?;
        }
        named.read(arguments)?;
        if let Some(list) = of_slurm.filter(|_| named.hosts.is_empty()) {
            let mut command = Command::new("scontrol");
            command.args(["show", "hostnames"]).arg(list);
            // Without it nobody is asked.
            run(command, ANSWER_MAX).unwrap_or_default().lines().for_each(|host| named.add(host));
        }
        let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let own = own.trim();
        let short = own.split('.').next().unwrap_or(own);
        named
            .hosts
            .retain(|host| ![own, short, "localhost"].contains(&host.as_str()) && !host.starts_with("127."));
        Ok(named)
    }

    fn read(&mut self, arguments: &[OsString]) -> Result<(), HostFileError> {
        let mut rest = arguments.iter();
        let mut is_named = false; // the agent is, by its path
        while let Some(word) = rest.next() {
            let word = word.to_string_lossy();
            let Some(option) = word.strip_prefix('-') else { break };
            let (option, attached) = match option.trim_start_matches('-').split_once('=') {
                Some((option, value)) => (option, Some(OsString::from(value))),
                None => (option.trim_start_matches('-'), None),
            };
            let mut value = || attached.clone().or_else(|| rest.next().cloned()).unwrap_or_default();
            match option {
                "f" | "hostfile" | "machinefile" => self.add_file(Path::new(&value()))?,
                "hosts" | "host" | "H" => {
                    value().to_string_lossy().split(',').for_each(|host| self.add(host))
                }
                "launcher-exec" | "bootstrap-exec" => {
                    (self.agent, is_named) = (Some(Agent::Shell(value())), true);
                }
                "launcher" | "bootstrap" => {
                    let launcher = value();
                    let is_like_ssh = launcher == "ssh" || launcher == "rsh";
                    if is_like_ssh && !is_named {
                        self.agent = Some(Agent::Shell(launcher));
                    } else if !is_like_ssh {
                        self.agent.take_if(|agent| launcher != "slurm" || !matches!(agent, Agent::Srun(_)));
                    }
                }
                "mca" | "prtemca" | "gmca" | "pmixmca" | "genv" | "env" => {
                    let (name, value) = (value(), rest.next().cloned().unwrap_or_default());
                    if ["plm_ssh_agent", "plm_rsh_agent"].iter().any(|known| name == *known) {
                        self.agent = Some(Agent::Shell(value));
                    }
                }
                _ => {
                    // Its value, if it has one. A program is none: what follows is the program's.
                    match rest.as_slice().first() {
                        Some(next) if is_program(next) => break,
                        Some(next) if !next.to_string_lossy().starts_with('-') => drop(rest.next()),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn add_file(&mut self, path: &Path) -> Result<(), HostFileError> {
        let text =
            fs::read_to_string(path).map_err(|cause| HostFileError { path: path.to_owned(), cause })?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        lines.filter_map(|line| line.split_whitespace().next()).for_each(|host| self.add(host));
        Ok(())
    }

    /// A host, and behind a colon how many ranks it may have. An IPv6 address has more colons.
    fn add(&mut self, host: &str) {
        let name = match host.split_once(':') {
            Some((name, ranks)) if !ranks.contains(':') => name,
            _ => host,
        };
        if !name.is_empty() {
            self.hosts.insert(name.to_owned());
        }
    }

    /// What is wrong with these nodes, in the order of their names, each asked at once: whether it has these files of ours, which speak
    /// this version of the protocol here.
    #[must_use]
    pub fn check(&self, mpi: &Installation, files: &[PathBuf], ours: u32) -> Vec<Trouble> {
        let Some(agent) = &self.agent else { return Vec::new() };
        let question = Question { mpi, files, ours };
        let hosts: Vec<&str> = self.hosts.iter().map(String::as_str).collect();
        match agent {
            Agent::Srun(srun) => question.ask_by_step(srun, &hosts),
            Agent::Shell(shell) => {
                let (shell, question) = (&*shell.to_string_lossy(), &question);
                let mut troubles = Vec::new();
                for some in hosts.chunks(AT_A_TIME) {
                    std::thread::scope(|scope| {
                        let ask = |host: &'_ &str| question.ask_by_shell(shell, host);
                        let asked: Vec<_> = some.iter().map(|host| scope.spawn(move || ask(host))).collect();
                        troubles.extend(asked.into_iter().filter_map(|thread| thread.join().ok().flatten()));
                    });
                }
                troubles
            }
        }
    }
}

/// Whether a word is a program's name, by its path or in `PATH`.
fn is_program(word: &OsStr) -> bool {
    let is = |path: &Path| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let word = Path::new(word);
    if word.components().count() > 1 {
        return is(word);
    }
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|folder| is(&folder.join(word)))
}

/// What nodes are asked.
struct Question<'a> {
    mpi: &'a Installation,
    /// The provider, the PMPI library, or both.
    files: &'a [PathBuf],
    ours: u32,
}

impl Question<'_> {
    /// The programs of which a node has one where its MPI is. MPICH's launcher starts it by its path, Open MPI's finds it in `PATH`, too.
    fn starters(&self) -> [PathBuf; 2] {
        let beside = |name: &str| self.mpi.mpiexec.with_file_name(name);
        match self.mpi.vendor {
            Vendor::Mpich | Vendor::Intel => [beside("hydra_pmi_proxy"), beside("hydra_bstrap_proxy")],
            Vendor::OpenMpi => [beside("prted"), beside("orted")],
        }
    }

    /// What a shell of the node runs.
    fn script(&self) -> String {
        let [first, second] = self.starters();
        let mut has_mpi =
            format!("[ -x {} ] || [ -x {} ]", quoted(first.as_os_str()), quoted(second.as_os_str()));
        if self.mpi.vendor == Vendor::OpenMpi {
            has_mpi += " || command -v prted >/dev/null || command -v orted >/dev/null";
        }
        let of_file = |file: &PathBuf| {
            let file = quoted(file.as_os_str());
            format!(
                "if [ -r {file} ]; then p=$(grep -ao '{VERSION_MARK}[0-9][0-9]*' {file} | head -n 1); echo \"{ANSWER}${{p:-{VERSION_MARK}0}}\"; \
                 else echo '{ANSWER}none'; fi; "
            )
        };
        let of_files: String = self.files.iter().map(of_file).collect();
        format!("{of_files}if {has_mpi}; then echo '{ANSWER}mpi'; else echo '{ANSWER}no mpi'; fi")
    }

    /// What is wrong with a node, if anything.
    fn ask_by_shell(&self, agent: &str, host: &str) -> Option<Trouble> {
        let mut words = agent.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or("ssh"));
        command.args(words);
        if Path::new(command.get_program()).file_name().is_some_and(|name| name == "ssh") {
            command.args(["-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=8"]);
        }
        command.arg(host).arg(format!("sh -c {}", quoted(self.script().as_ref())));
        let unreachable =
            |why: String| Some(Trouble::Unreachable { host: host.to_owned(), agent: agent.to_owned(), why });
        match run(command, ANSWER_MAX) {
            Err(why) => unreachable(why),
            Ok(said) => {
                self.understand(host, &said).unwrap_or_else(|| unreachable("it answers nothing".to_owned()))
            }
        }
    }

    /// What is wrong with nodes of an allocation, which one step asks. Slurm knows whether they are up; an allocation without room
    /// for a step says nothing about them.
    fn ask_by_step(&self, srun: &OsStr, hosts: &[&str]) -> Vec<Trouble> {
        let said = if hosts.is_empty() {
            String::new()
        } else {
            run(self.step(srun, hosts), ANSWER_MAX).unwrap_or_default()
        };
        let of = |host: &str| {
            let lines = said.lines().filter_map(|line| line.strip_prefix(host)?.strip_prefix(' '));
            self.understand(host, &lines.collect::<Vec<_>>().join("\n")).flatten()
        };
        hosts.iter().filter_map(|host| of(host)).collect()
    }

    /// A job step with a process on each node, beside those that run there, which does not wait long for room. Each line of the
    /// answer begins with the node's name.
    fn step(&self, srun: &OsStr, hosts: &[&str]) -> Command {
        let mut command = Command::new(srun);
        command.args([
            "--overlap",
            "--immediate=5",
            "--mem=0",
            "--mpi=none",
            "--quiet",
            "--ntasks-per-node=1",
        ]);
        command.args([format!("--nodes={}", hosts.len()), format!("--ntasks={}", hosts.len())]);
        command.arg(format!("--nodelist={}", hosts.join(",")));
        command.args(["sh", "-c"]).arg(format!("{{ {}; }} | sed \"s/^/$SLURMD_NODENAME /\"", self.script()));
        // They would change the answer or divert it, or keep srun from asking.
        for name in ["SLURM_LABELIO", "SLURM_DEBUG", "SLURM_EXPORT_ENV", "SLURM_STDOUTMODE"] {
            command.env_remove(name);
        }
        command
    }

    /// What a node's answer means; `None` if it is none.
    fn understand(&self, host: &str, said: &str) -> Option<Option<Trouble>> {
        let answers: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix(ANSWER)).collect();
        let host = host.to_owned();
        // The MPI comes last.
        let (last, of_files) = answers.split_last()?;
        match *last {
            "mpi" => {}
            "no mpi" => {
                let [program, _] = self.starters();
                return Some(Some(Trouble::NoMpi { host, program }));
            }
            _ => return None,
        }
        let ours = self.ours;
        let trouble = |(file, answer): (&PathBuf, &&str)| {
            let (host, file) = (host.clone(), file.clone());
            match answer.strip_prefix(VERSION_MARK).and_then(|number| number.parse().ok()) {
                None => Some(Trouble::NoProvider { host, file }),
                Some(theirs) if theirs != ours => Some(Trouble::OtherVersion { host, file, theirs, ours }),
                Some(_) => None,
            }
        };
        (of_files.len() == self.files.len()).then(|| self.files.iter().zip(of_files).find_map(trouble))
    }
}

/// What a command prints, if it ends well, or as much of it as comes in time; else why there is nothing.
fn run(mut command: Command, time_max: Duration) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    // Files, and no pipes: they take any length, and do not care who else has them open.
    let (mut said, mut complained) =
        (tempfile::tempfile().map_err(text)?, tempfile::tempfile().map_err(text)?);
    command.stdin(Stdio::null()).stdout(said.try_clone().map_err(text)?);
    let mut child = command.stderr(complained.try_clone().map_err(text)?).spawn().map_err(text)?;
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if begun.elapsed() < time_max => std::thread::sleep(Duration::from_millis(10)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    let read = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).map_err(text)?;
        Ok::<_, String>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (said, complained) = (read(&mut said)?, read(&mut complained)?);
    match (status, complained.lines().rev().find(|line| !line.trim().is_empty())) {
        _ if !said.is_empty() => Ok(said),
        (Some(status), _) if status.success() => Ok(said),
        (None, _) => Err(format!("no answer within {time_max:?}")),
        (Some(_), Some(line)) => Err(line.trim().to_owned()),
        (Some(status), None) => Err(status.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::unnecessary_wraps, reason = "as it is compared with")]
    fn shell(words: &str) -> Option<Agent> {
        Some(Agent::Shell(words.into()))
    }

    fn read(arguments: &str) -> Named {
        let mut named = Named { hosts: BTreeSet::new(), agent: shell("ssh") };
        let words: Vec<OsString> = arguments.split(' ').map(OsString::from).collect();
        named.read(&words).unwrap();
        named
    }

    fn hosts(arguments: &str) -> Vec<String> {
        read(arguments).hosts.into_iter().collect()
    }

    #[test]
    fn hosts_are_found_before_the_program_only() {
        assert_eq!(hosts("-n 4 -hosts n1:2,n0 -ppn 1 /bin/sh -hosts no"), ["n0", "n1"]);
        assert_eq!(hosts("--host a:4,b -x FI_LOG_LEVEL --mca pml cm /bin/sh -H c"), ["a", "b"]);
        assert_eq!(hosts("--host=a --oversubscribe /bin/sh --host c"), ["a"]);
        assert_eq!(hosts("-n 2 -genv A -hosts -host fe80::1 true"), ["fe80::1"]);
        assert!(hosts("-n 2 sh -f file").is_empty());
        assert!(hosts("").is_empty());
    }

    #[test]
    fn files_of_hosts_are_read_in_either_mpis_way() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts");
        fs::write(&file, "# all\nn0\nn1:2\n n2 slots=4 max_slots=8 # big\n\n10.0.0.7:1\n").unwrap();
        let path = file.display();
        assert_eq!(hosts(&format!("-f {path} true")), ["10.0.0.7", "n0", "n1", "n2"]);
        let mut named = Named::default();
        let missing = [OsString::from("--hostfile"), "/nonexistent/hosts".into()];
        let error = named.read(&missing).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/hosts: No such file"), "{error}");
    }

    #[test]
    fn what_starts_processes_is_what_the_launcher_uses() {
        assert_eq!(read("-n 2 -launcher-exec /lab/ssh true").agent, shell("/lab/ssh"));
        assert_eq!(read("--prtemca plm_ssh_agent /lab/ssh -n 2 true").agent, shell("/lab/ssh"));
        assert_eq!(read("-launcher slurm -n 2 true").agent, None); // there is no allocation
        assert_eq!(read("-launcher fork -n 2 true").agent, None);
        let of_intel = read("-bootstrap ssh -bootstrap-exec /lab/ssh -hosts n1 -n 2 true");
        assert_eq!((of_intel.agent, of_intel.hosts), (shell("/lab/ssh"), ["n1".to_owned()].into()));
        let of_two = read("-launcher rsh -hosts n1 -n 2 true");
        assert_eq!((of_two.agent, of_two.hosts), (shell("rsh"), ["n1".to_owned()].into()));
        for both in
            ["-launcher ssh -launcher-exec /lab/ssh true", "-launcher-exec /lab/ssh -launcher ssh true"]
        {
            assert_eq!(read(both).agent, shell("/lab/ssh"), "{both}");
        }
    }

    /// Asks "nodes" that are shells here, by what starts the words behind a host, and by what starts those behind its options.
    fn asked(vendor: Vendor, provider: Option<&str>, has_mpi: bool) -> Option<Trouble> {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("it's own");
        fs::create_dir(&own).unwrap();
        let agent = own.join("agent");
        fs::write(&agent, "echo welcome\nshift\neval \"$@\"\n").unwrap();
        let srun = folder.path().join("srun");
        // By a process of its own: a child of another thread may have what this one writes open, and then nobody can run it.
        let make = "printf '#!/bin/sh\necho welcome\nwhile [ $1 != sh ]; do shift; done\nSLURMD_NODENAME=n1 exec \"$@\"\n' \
                    >\"$0\"; chmod +x \"$0\"";
        assert!(Command::new("sh").args(["-c", make]).arg(&srun).status().unwrap().success());
        let executable = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        // The agent's path has no blank in it: it may have arguments.
        let link = folder.path().join("agent");
        std::os::unix::fs::symlink(&agent, &link).unwrap();
        let mpi = Installation {
            vendor,
            version: String::new(),
            mpiexec: own.join("mpiexec"),
            uses_libfabric: true,
            device: String::new(),
        };
        if let Some(content) = provider {
            fs::write(own.join(provider::FILE), content).unwrap();
        }
        if has_mpi {
            let name = if vendor == Vendor::OpenMpi { "prted" } else { "hydra_pmi_proxy" };
            fs::write(own.join(name), "").unwrap();
            executable(&own.join(name));
        }
        let files = [own.join(provider::FILE)];
        let question = Question { mpi: &mpi, files: &files, ours: 7 };
        // By a shell, which may run what another thread has just written.
        let by_shell = question.ask_by_shell(&format!("sh {}", link.display()), "n1");
        let by_step = question.ask_by_step(srun.as_os_str(), &["n0", "n1", "n10"]);
        assert_eq!(by_step, Vec::from_iter(by_shell.clone()), "only n1 answers");
        by_shell
    }

    #[test]
    fn nodes_are_asked_for_the_provider_and_the_mpi() {
        let right = Some("\x7fELF tsumugi wire protocol 7\0");
        assert_eq!(asked(Vendor::Mpich, right, true), None);
        assert_eq!(asked(Vendor::OpenMpi, right, true), None);
        let trouble = asked(Vendor::Mpich, right, false).unwrap();
        assert!(matches!(trouble, Trouble::NoMpi { .. }), "{trouble}");
        let trouble = asked(Vendor::Mpich, None, true).unwrap();
        assert!(matches!(trouble, Trouble::NoProvider { .. }), "{trouble}");
        let trouble = asked(Vendor::OpenMpi, Some("tsumugi wire protocol 6"), true).unwrap();
        assert!(matches!(trouble, Trouble::OtherVersion { theirs: 6, ours: 7, .. }), "{trouble}");
        let trouble = asked(Vendor::Mpich, Some("something else"), true).unwrap();
        assert!(matches!(trouble, Trouble::OtherVersion { theirs: 0, .. }), "{trouble}");
    }

    #[test]
    fn what_a_command_says_is_heard_whatever_its_length_and_though_it_hangs() {
        let shell = |script: &str, time_max| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            run(command, time_max)
        };
        // More than a pipe holds.
        let said = shell("seq 20000; exec sleep 60", Duration::from_secs(3)).unwrap();
        assert_eq!(said.lines().last(), Some("20000"));
        let nothing = shell("exec sleep 60", Duration::from_millis(100));
        assert_eq!(nothing, Err("no answer within 100ms".to_owned()));
        assert_eq!(shell("echo why >&2; exit 1", ANSWER_MAX), Err("why".to_owned()));
    }

    #[test]
    fn a_node_that_cannot_be_reached_is_told_with_the_reason() {
        let mpi = Installation {
            vendor: Vendor::Mpich,
            version: String::new(),
            mpiexec: "/x/mpiexec".into(),
            uses_libfabric: true,
            device: String::new(),
        };
        for (agent, reason) in
            [("/nonexistent/ssh", "No such file"), ("false", "exit status: 1"), ("true", "answers nothing")]
        {
            let named = Named { hosts: ["n1".to_owned()].into(), agent: shell(agent) };
            let troubles = named.check(&mpi, &["/x/it".into()], 1);
            let [trouble] = &troubles[..] else { panic!("{troubles:?}") };
            let text = trouble.to_string();
            assert!(text.contains(reason) && text.contains("ssh-copy-id n1"), "{text}");
        }
        // An allocation need not have room for a question.
        for srun in ["/nonexistent/srun", "false", "true"] {
            let named = Named { hosts: ["n1".to_owned()].into(), agent: Some(Agent::Srun(srun.into())) };
            assert_eq!(named.check(&mpi, &["/x/it".into()], 1), []);
        }
    }
}
