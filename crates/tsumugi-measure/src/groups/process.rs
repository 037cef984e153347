//! One of the processes of a measurement: what it is told, and its endpoint.

use std::net::IpAddr;

use clap::Args;
use tsumugi::{Config, Endpoint, PeerId, ReceiveChoice, SendChoice, Wait};

use crate::conditions::{Side, Told};
use crate::cpu::{Cpus, pin};

/// The UDP port of all of them.
pub(super) const PORT: u16 = 7411;

pub(super) type Boxed = Box<dyn std::error::Error>;

/// What each is told.
#[derive(Args)]
pub(super) struct Process {
    /// All of them, in the order of their ranks.
    #[arg(long = "host", required = true)]
    pub(super) hosts: Vec<IpAddr>,
    /// Which of them this is.
    #[arg(long)]
    pub(super) rank: usize,
    #[arg(long)]
    receive: ReceiveChoice,
    #[arg(long)]
    send: SendChoice,
    #[arg(long)]
    wait: Wait,
    /// Seconds for each figure.
    #[arg(long)]
    pub(super) time: f64,
    /// Run on these CPUs only.
    #[arg(long)]
    cpu: Option<Cpus>,
}

impl Process {
    /// What it is that measured, and what it found.
    pub(super) fn told<T>(&self, endpoint: &Endpoint, found: T) -> Told<T> {
        Told { side: Side::of(endpoint, self.wait), found }
    }

    /// Keeps to its CPUs and opens its endpoint. Returns that and the others, by rank.
    pub(super) fn open(&self) -> Result<(Endpoint, Vec<Option<PeerId>>), Boxed> {
        self.cpu.as_ref().map_or(Ok(()), pin)?;
        let config = Config::default().port(PORT).receive(self.receive).send(self.send).wait(self.wait);
        let endpoint = Endpoint::open(config)?;
        let peer = |(rank, host): (usize, &IpAddr)| {
            (rank != self.rank).then(|| endpoint.add_peer(format!("{host}:{PORT}"))).transpose()
        };
        let peers = self.hosts.iter().enumerate().map(peer).collect::<Result<_, _>>()?;
        Ok((endpoint, peers))
    }
}
