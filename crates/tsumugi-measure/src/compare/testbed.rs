//! Where a comparison runs: a lab of two nodes, or loopback.

use std::time::Duration;

use tsumugi_lab::{Lab, LabGuard, Spec};

use super::CompareError;
use crate::cpu;
use tsumugi_lab::child::{ChildError, Running};
use tsumugi_lab::interrupt::interrupted;

/// How the lab of a comparison is called: `compare-PID-NUMBER`.
pub(super) const LAB_STEM: &str = "compare";

/// What a testbed is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) offloads: bool,
    pub(super) mtu_bytes: u32,
    /// Whether the XDP program is attached on both sides.
    pub(super) attached: bool,
}

/// How many processes of a side can receive through the XDP program at once: more than a comparison runs.
const ENDPOINTS_MAX: &str = "4";

/// How long attaching may take: it is half a second's work.
const ATTACH_MAX: Duration = Duration::from_secs(30);

/// Two ends of a wire. Removed when dropped.
pub(super) struct Testbed {
    /// Servers first: they must be gone before the lab goes.
    servers: Vec<Server>,
    lab: Option<LabGuard>,
}

/// A `tsumugi perf serve`.
struct Server {
    port: u16,
    _process: Running,
}

impl Testbed {
    /// The machine's own loopback.
    pub(super) fn loopback() -> Testbed {
        Testbed { servers: Vec::new(), lab: None }
    }

    /// A lab of our own.
    pub(super) fn lab(site: Site) -> Result<Testbed, CompareError> {
        let spec = Spec { mtu: site.mtu_bytes, offloads: site.offloads, ..Spec::unique(LAB_STEM) };
        let testbed = match Lab::up_watched(&spec, &mut |_| !interrupted()) {
            Ok(lab) => Testbed { servers: Vec::new(), lab: Some(lab.guarded()) },
            Err(_) if interrupted() => return Err(CompareError::Interrupted),
            Err(error) => return Err(error.into()),
        };
        if site.attached {
            testbed.attach()?;
        }
        Ok(testbed)
    }

    /// Attaches the XDP program on both sides. It goes with the lab.
    fn attach(&self) -> Result<(), CompareError> {
        for (node, of) in self.lab.iter().flat_map(|lab| lab.nodes()).enumerate() {
            let nics = of.nics.iter().map(|nic| nic.name.clone());
            let mut arguments: Vec<String> = std::iter::once("up".to_owned()).chain(nics).collect();
            arguments.extend(["--endpoints", ENDPOINTS_MAX].map(str::to_owned));
            self.start(node, &arguments)?.output(ATTACH_MAX)?;
        }
        Ok(())
    }

    /// Starts this program on node 0 (which measures) or 1 (which serves).
    fn start(&self, node: usize, arguments: &[String]) -> Result<Running, ChildError> {
        Running::ours(self.lab.as_deref().map(|lab| (lab, node)), arguments)
    }

    /// Starts a server on node 1; its number counts from 0.
    pub(super) fn serve(&mut self, cpus: Option<String>) -> Result<(), CompareError> {
        let mut arguments: Vec<String> = ["perf", "serve", "--port", "0"].map(str::to_owned).into();
        if let Some(cpus) = cpus {
            arguments.extend(["--cpu".to_owned(), cpus]);
        }
        let mut process = self.start(1, &arguments)?;
        let line = process.first_line(Duration::from_secs(10))?;
        let port = line.split_once("port ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        let port = port.ok_or_else(|| ChildError::Failed {
            command: process.command().to_owned(),
            status: "no port".to_owned(),
            said: line,
        })?;
        self.servers.push(Server { port, _process: process });
        Ok(())
    }

    /// Starts `tsumugi perf METRIC` against server number `server`.
    pub(super) fn perf(
        &self,
        metric: &str,
        server: usize,
        options: &[String],
    ) -> Result<Running, CompareError> {
        let host = match &self.lab {
            Some(lab) => lab.nodes()[1].nics[0].address.to_string(),
            None => "127.0.0.1".to_owned(),
        };
        let mut arguments = vec!["perf".to_owned(), metric.to_owned()];
        arguments.push(format!("{host}:{}", self.servers[server].port));
        arguments.extend_from_slice(options);
        Ok(self.start(0, &arguments)?)
    }

    /// What the messages cross.
    pub(super) fn wire(&self) -> String {
        match &self.lab {
            Some(lab) => format!("lab ({})", lab.wire()),
            None => "loopback".to_owned(),
        }
    }
}

/// The CPUs of client and server: different ones when there are.
pub(super) fn two_cpus() -> (Option<String>, Option<String>) {
    match cpu::allowed().0[..] {
        [client, server, ..] => (Some(client.to_string()), Some(server.to_string())),
        _ => (None, None),
    }
}
