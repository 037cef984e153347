//! Where a case is measured: a lab of two nodes, with as many NICs of the case's rate in each.

use std::cell::RefCell;
use std::time::Duration;

use tsumugi::Policy;
use tsumugi_lab::{Lab, LabGuard, Spec};

use super::case::Case;
use super::contender::{Bond, Contender};
use super::flow::{Received, Sent};
use super::kernel;
use super::results::Run;
use super::{EvalError, LAB_STEM};
use crate::conditions::Conditions;
use crate::cpu;
use tsumugi_lab::child::{ChildError, Running};
use tsumugi_lab::interrupt::interrupted;

/// How long a receiver may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(10);
/// How much longer than its run a sender may take: it finds paths before, and empties its queues after.
const LONGER_MAX: Duration = Duration::from_secs(60);

/// The nodes.
const SENDING: usize = 0;
const RECEIVING: usize = 1;

/// The lab of a case; removed when dropped.
pub(super) struct Testbed<'m> {
    case: Case,
    lab: LabGuard,
    measured: &'m RefCell<Conditions>,
}

impl Testbed<'_> {
    pub(super) fn make(case: Case, measured: &RefCell<Conditions>) -> Result<Testbed<'_>, EvalError> {
        let spec = Spec { nics: case.nics, rate: Some(case.rate), ..Spec::unique(LAB_STEM) };
        match Lab::up_watched(&spec, &mut |_| !interrupted()) {
            Ok(lab) => Ok(Testbed { case, lab: lab.guarded(), measured }),
            Err(_) if interrupted() => Err(EvalError::Interrupted),
            Err(error) => Err(error.into()),
        }
    }

    /// What the messages cross.
    pub(super) fn wire(&self) -> String {
        format!("lab ({})", self.lab.wire())
    }

    /// Runs the case with a policy; cases usually take `time_s`.
    pub(super) fn ours(&self, policy: Policy, time_s: f64) -> Result<Run, EvalError> {
        let host = self.lab.nodes()[RECEIVING].nics[0].address.to_string();
        let options = [format!("--policy={policy}")];
        self.run(Contender::Ours(policy), &host, &options, time_s)
    }

    /// Bonds the NICs, and runs the case over TCP. The lab is of no other use afterwards.
    pub(super) fn kernel(self, bond: Bond, time_s: f64) -> Result<Run, EvalError> {
        kernel::make(&self.lab, bond)?;
        self.run(Contender::Kernel(bond), kernel::ADDRESSES[RECEIVING], &[], time_s)
    }

    fn run(
        &self,
        contender: Contender,
        host: &str,
        options: &[String],
        time_s: f64,
    ) -> Result<Run, EvalError> {
        let times_s = self.case.times_s(time_s);
        // One side each, as when they are hosts.
        let (send_cpu, receive_cpu) = match cpu::allowed().0[..] {
            [first, second, ..] => (Some(first), Some(second)),
            _ => (None, None),
        };
        let arguments = |role: &str, cpu: Option<usize>| {
            let mut arguments = vec!["eval".to_owned(), role.to_owned()];
            arguments.extend_from_slice(options);
            arguments.extend(cpu.map(|cpu| format!("--cpu={cpu}")));
            arguments
        };
        let mut source = arguments("source", send_cpu);
        let mut sinks = Vec::new();
        for _ in 0..self.case.senders {
            let mut sink = Running::ours(Some((&self.lab, RECEIVING)), &arguments("sink", receive_cpu))?;
            source.push(format!("--to={host}:{}", port(&mut sink)?));
            sinks.push(sink);
        }
        source.push(format!("--nics={}", self.case.nics));
        source.extend([format!("--alone={}", times_s.0), format!("--time={}", times_s.1)]);
        let source = Running::ours(Some((&self.lab, SENDING)), &source)?;
        let limit = Duration::from_secs_f64(times_s.0 + times_s.1) + LONGER_MAX;
        let sent: Sent = source.json(limit)?;
        let received = sinks.into_iter().map(|sink| sink.json(BEGIN_MAX));
        let received = received.collect::<Result<Vec<Received>, ChildError>>()?;
        self.measured.borrow_mut().add([&sent.side]);
        received.iter().for_each(|it| self.measured.borrow_mut().add([&sent.side, &it.side]));
        Ok(run(self.case, contender, times_s, &sent, &received))
    }
}

/// The port that a receiver tells of first.
fn port(sink: &mut Running) -> Result<u16, ChildError> {
    let line = sink.first_line(BEGIN_MAX)?;
    let port = line.strip_prefix("port ").and_then(|port| port.parse().ok());
    port.ok_or_else(|| ChildError::Failed {
        command: sink.command().to_owned(),
        status: "no port".to_owned(),
        said: line,
    })
}

/// Puts together what both sides tell.
fn run(case: Case, contender: Contender, times_s: (f64, f64), sent: &Sent, received: &[Received]) -> Run {
    let (joined, ended) = (Received::buckets(times_s.0), Received::buckets(times_s.0 + times_s.1));
    let cpu_ns = received.iter().map(|it| it.cpu_between(sent.begin + joined, sent.begin + ended)).sum();
    let paths = || sent.flows.iter().map(|flow| &flow.paths);
    Run {
        case,
        contender,
        is_simulated: false,
        times_s,
        bytes: received.iter().map(|flow| flow.bytes_since(sent.begin)).collect(),
        packets: paths().map(|paths| paths.iter().map(|path| path.delivered).collect()).collect(),
        lost: paths().flatten().map(|path| path.lost).sum(),
        cpu_ns: Some((sent.cpu_ns, cpu_ns)),
        send: sent.send.clone(),
    }
}
