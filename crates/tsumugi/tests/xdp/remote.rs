//! An endpoint in another process, as a test sees it.

use crate::cluster::{Cluster, PORT, eventually, four};
use crate::process::Process;
use std::time::Duration;

/// An endpoint in another process. The process is killed when this is dropped.
pub(crate) struct Remote(pub(crate) Process);

/// What an endpoint says about itself.
#[derive(Clone, Debug)]
pub(crate) struct Report(String);

impl Report {
    /// The value called `name`.
    pub(crate) fn get(&self, name: &str) -> u64 {
        let mut values = self.0.split(' ').filter_map(|pair| pair.split_once('='));
        let found = values.find(|(have, _)| *have == name).unwrap_or_else(|| panic!("{name} in {self:?}"));
        found.1.parse().expect("a number")
    }

    /// Whether the program deposits, as the endpoint believes.
    pub(crate) fn uses_xdp(&self) -> bool {
        self.get("uses_xdp") != 0
    }
}

impl Remote {
    /// Opens an endpoint in a node.
    pub(crate) fn open(cluster: &Cluster, node: usize, settings: &str) -> Remote {
        Remote::try_open(cluster.start(node, &format!("endpoint {settings}"))).expect("an endpoint")
    }

    /// As [`Remote::open`], by a process that plays the role; why not, when it is refused.
    pub(crate) fn try_open(mut process: Process) -> Result<Remote, String> {
        match process.hear() {
            opened if opened == "open" => Ok(Remote(process)),
            refused => Err(refused),
        }
    }

    /// Gives an order and returns the answer.
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.0.tell(order);
        self.0.hear()
    }

    /// Gives an order that has no other answer.
    pub(crate) fn order(&mut self, order: &str) {
        assert_eq!(self.ask(order), "yes", "{order}");
    }

    /// What it says about itself.
    pub(crate) fn report(&mut self) -> Report {
        Report(self.ask("report"))
    }

    /// What went wrong so far; empty when nothing did.
    pub(crate) fn failure(&mut self) -> String {
        self.ask("failure")
    }

    /// Waits until what it says about itself is so.
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Report) -> bool) -> Report {
        let mut last = self.report();
        eventually(what, || {
            if !is_so(&last) {
                let failure = self.failure();
                assert!(failure.is_empty(), "waiting for {what}: {failure}");
                last = self.report();
            }
            is_so(&last).then(|| last.clone())
        })
    }

    /// Waits until it has received so many messages, all as they should be.
    pub(crate) fn until_taken(&mut self, messages: u64) -> Report {
        self.until(&format!("{messages} messages"), |report| report.get("taken") >= messages)
    }

    /// Whether it says nothing for a while.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.0.hear_within(Duration::from_millis(500)).is_none()
    }

    /// Its end: the process drops the endpoint and ends well.
    pub(crate) fn end(mut self) {
        self.0.tell("end");
        self.0.finish_while(|| ());
    }
}

/// Ends two streams towards each other; everything sent has arrived then.
pub(crate) fn conclude(one: &mut Remote, other: &mut Remote) -> [Report; 2] {
    for remote in [&mut *one, &mut *other] {
        remote.order("stop");
    }
    let reports = [&mut *one, &mut *other].map(|remote| {
        remote.until("both streams to end", |report| report.get("ended") != 0 && report.get("pending") == 0)
    });
    let [one, other] = &reports;
    assert_eq!((one.get("posted"), other.get("posted")), (other.get("taken"), one.get("taken")));
    reports
}

/// Endpoints in both nodes that send each other all the time, by way of the program.
pub(crate) fn streaming(cluster: &Cluster, receive_path: &str) -> [Remote; 2] {
    let mut remotes = [0, 1].map(|node| {
        let peer = four(1 - node, PORT);
        Remote::open(cluster, node, &format!("port={PORT} peer={peer} receive={receive_path}"))
    });
    for remote in &mut remotes {
        remote.order("stream");
    }
    for remote in &mut remotes {
        let report = remote.until_taken(100);
        assert!(report.uses_xdp() && report.get("packets_by_xdp") > 0, "{report:?}");
    }
    remotes
}
