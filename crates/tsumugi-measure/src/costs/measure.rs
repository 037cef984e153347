//! Measuring: two threads, each in a node of its own and on a CPU of its own. Node 0's says what is to be done.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tsumugi::PeerId;
use tsumugi_lab::Lab;
use tsumugi_rail::xdp::{Counting, Runs};

use super::bare::{Bare as BareSocket, ThroughSendPath, connected};
use super::parts::{Bare, Costs, Part, Round};
use super::talk::{MESSAGE_BYTES, Sample, Talker};
use super::timing::{Lines, clock_ns, median_ns, paced, wait_busily};
use super::wires::{Side, Wire, lab};
use super::{CostsError, CostsOptions, Sides};
use crate::cpu::{Cpus, allowed, pin};
use tsumugi_lab::interrupt::interrupted;

/// Round trips of one conversation.
const ROUND_TRIPS: usize = 8000;
/// System calls of one kind in a round.
const CALLS: usize = 2500;
/// Samples of moving the cache line in a round.
const LINES: u32 = 200;
/// An answer through bare sockets takes microseconds; after so long there is none.
const ECHO_MAX: Duration = Duration::from_secs(2);
/// Looks into a bare socket between two looks at the clock.
const LOOKS: u32 = 4096;

/// What the thread in node 1 is told to do, one after the other.
enum Task {
    /// Open an endpoint with this send path; say its port.
    Open(String),
    /// Answer messages with that endpoint.
    Answer(usize, usize),
    /// The same, and say what was noted.
    AnswerNoted(usize, usize),
    /// Answer datagrams.
    Echo(usize),
    /// Be as busy as one who waits, until this is true.
    Wait(Arc<AtomicBool>),
    /// Answer through cache lines.
    Lines(Arc<Lines>),
    /// Say what the kernel has counted.
    Count,
}

/// What it says when it has done so.
enum Word {
    Port(u16),
    Done,
    Noted(Vec<Sample>),
    Counted { deposits: Runs, drops: Runs },
}

/// Costs with each send path, and those of a bare UDP socket.
pub(super) fn measure(
    options: &CostsOptions,
    sides: &Sides,
    mut progress: impl FnMut(u32, &str) + Send,
) -> Result<(Vec<Costs>, Bare), CostsError> {
    let cpus = allowed().0;
    let [first, second, ..] = cpus[..] else { return Err(CostsError::OneCpu) };
    let lab = lab(Wire::COUNT)?;
    let (tasks, to_do) = channel();
    let (words, said) = channel();
    let lab: &Lab = &lab;
    thread::scope(|scope| {
        // Each has its ends of the channels for itself: when one ends, the other notices.
        let there = scope.spawn(move || serve(lab, second, sides, &to_do, &words));
        let progress = &mut progress;
        let here =
            scope.spawn(move || Asker::open(lab, first, options, sides, tasks, said)?.run(options, progress));
        let asked = here.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let served = there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (asked, served) {
            // Node 1's own words are the better explanation.
            (Err(CostsError::Gone), Err(error)) => Err(error),
            (asked, _) => asked,
        }
    })
}

/// The thread in node 1.
fn serve(
    lab: &Lab,
    cpu: usize,
    sides: &Sides,
    tasks: &Receiver<Task>,
    words: &Sender<Word>,
) -> Result<(), CostsError> {
    pin(&Cpus(vec![cpu])).map_err(CostsError::failed("choosing a CPU"))?;
    let side = Side::enter(lab, 1)?;
    let socket = connected(&side.link(Wire::Plain)?).map_err(CostsError::failed("opening a UDP socket"))?;
    let mut talkers: Vec<Talker> = Vec::new();
    for task in tasks {
        let word = match task {
            Task::Open(send_path) => {
                let talker = Talker::open(side.address(Wire::Deposits), &send_path)?;
                let port = talker.port();
                sides.add(1, talker.endpoint());
                talkers.push(talker);
                Word::Port(port)
            }
            Task::Answer(talker, count) => talkers[talker].answer(count).map(|()| Word::Done)?,
            Task::AnswerNoted(talker, count) => Word::Noted(talkers[talker].answer_noted(count)?),
            Task::Echo(count) => echo(&socket, count).map(|()| Word::Done)?,
            Task::Wait(over) => {
                wait_busily(&over);
                Word::Done
            }
            Task::Lines(lines) => {
                lines.answer(LINES);
                Word::Done
            }
            Task::Count => Word::Counted { deposits: side.deposits()?, drops: side.drops()? },
        };
        if words.send(word).is_err() {
            break;
        }
    }
    Ok(())
}

/// The thread in node 0.
struct Asker {
    side: Side,
    tasks: Sender<Task>,
    words: Receiver<Word>,
    lines: Arc<Lines>,
    socket: UdpSocket,
    /// In the order of the options.
    send_paths: Vec<Asked>,
}

/// A send path, and what it is measured with.
struct Asked {
    talker: Talker,
    peer: PeerId,
    refusing: BareSocket,
    dropping: BareSocket,
    through: ThroughSendPath,
    rounds: Vec<Round>,
}

impl Asker {
    fn open(
        lab: &Lab,
        cpu: usize,
        options: &CostsOptions,
        sides: &Sides,
        tasks: Sender<Task>,
        words: Receiver<Word>,
    ) -> Result<Asker, CostsError> {
        pin(&Cpus(vec![cpu])).map_err(CostsError::failed("choosing a CPU"))?;
        let side = Side::enter(lab, 0)?;
        let socket =
            connected(&side.link(Wire::Plain)?).map_err(CostsError::failed("opening a UDP socket"))?;
        let mut asker = Asker { side, tasks, words, lines: Arc::default(), socket, send_paths: Vec::new() };
        for send_path in &options.send_paths {
            let asked = asker.begin(send_path)?;
            sides.add(0, asked.talker.endpoint());
            asker.send_paths.push(asked);
        }
        Ok(asker)
    }

    fn begin(&self, send_path: &str) -> Result<Asked, CostsError> {
        self.tell(Task::Open(send_path.to_owned()))?;
        let Word::Port(port) = self.hear()? else { return Err(CostsError::Gone) };
        let mut talker = Talker::open(self.side.address(Wire::Deposits), send_path)?;
        let peer = talker.add_peer(SocketAddr::new(self.side.address_there(Wire::Deposits), port))?;
        // The first conversation tells how long the packets are.
        self.tell(Task::AnswerNoted(self.send_paths.len(), ROUND_TRIPS))?;
        talker.ask_noted(peer, ROUND_TRIPS)?;
        self.hear()?;
        let bytes = talker.packet_bytes();
        Ok(Asked {
            talker,
            peer,
            refusing: BareSocket::open(send_path, &self.side.link(Wire::Refuses)?, bytes)?,
            dropping: BareSocket::open(send_path, &self.side.link(Wire::Drops)?, bytes)?,
            through: ThroughSendPath::open(send_path, &self.side.link(Wire::DropsToo)?, bytes)?,
            rounds: Vec::new(),
        })
    }

    fn tell(&self, task: Task) -> Result<(), CostsError> {
        self.tasks.send(task).map_err(|_| CostsError::Gone)
    }

    fn hear(&self) -> Result<Word, CostsError> {
        self.words.recv().map_err(|_| CostsError::Gone)
    }

    fn run(
        mut self,
        options: &CostsOptions,
        progress: &mut (impl FnMut(u32, &str) + Send),
    ) -> Result<(Vec<Costs>, Bare), CostsError> {
        let mut send_paths = std::mem::take(&mut self.send_paths);
        let (mut round_trips, mut system_calls) = (Vec::new(), Vec::new());
        for round in 0..options.rounds {
            progress(round, "udp socket");
            round_trips.push(self.bare()?);
            for (at, (asked, name)) in send_paths.iter_mut().zip(&options.send_paths).enumerate() {
                if interrupted() {
                    return Err(CostsError::Interrupted);
                }
                progress(round, name);
                let measured = self.round(at, asked)?;
                asked.rounds.push(measured);
            }
            system_calls.push(self.refused()?);
        }
        let costs = send_paths.iter().zip(&options.send_paths);
        let costs = costs.map(|(asked, name)| Costs::of(name, MESSAGE_BYTES as u64, &asked.rounds)).collect();
        Ok((costs, Bare::of(&round_trips, &system_calls)))
    }

    /// One round with one send path: every part once.
    fn round(&self, at: usize, asked: &mut Asked) -> Result<Round, CostsError> {
        let clock_ns = clock_ns();
        let round_trip = self.round_trip(at, asked)?;
        let program_counted = self.counted(at, asked)?;
        let talk = self.noted(at, asked, clock_ns)?;
        let (calls, drop_counted) = self.calls(asked, clock_ns)?;
        self.tell(Task::Lines(Arc::clone(&self.lines)))?;
        let wire = self.lines.ask(LINES);
        self.hear()?;
        let mut round = Round {
            call: talk.call,
            conversing: talk.call - calls.through,
            round_trip,
            ahead: talk.late + wire,
            ..Round::default()
        };
        let mut set = |part: Part, ns: f64| round.parts[part as usize] = ns;
        set(Part::LibrarySend, talk.send + (calls.through - calls.dropped));
        set(Part::SystemCall, calls.refused);
        set(Part::DriverSend, calls.none - calls.refused);
        set(Part::Softirq, calls.dropped - calls.none);
        set(Part::Program, program_counted - drop_counted);
        set(Part::Wire, wire);
        set(Part::LibraryReceive, talk.receive);
        Ok(round)
    }

    /// Median round trip, ns, with nothing else going on.
    fn round_trip(&self, at: usize, asked: &mut Asked) -> Result<f64, CostsError> {
        self.tell(Task::Answer(at, ROUND_TRIPS))?;
        let mut times = asked.talker.ask(asked.peer, ROUND_TRIPS)?;
        self.hear()?;
        Ok(median_ns(&mut times))
    }

    /// Mean time of the XDP program in a conversation, ns, of both sides; what counting adds included.
    fn counted(&self, at: usize, asked: &mut Asked) -> Result<f64, CostsError> {
        let counting = Counting::begin()?;
        let before = (self.side.deposits()?, self.there()?.0);
        self.round_trip(at, asked)?;
        let after = (self.side.deposits()?, self.there()?.0);
        drop(counting);
        let here = after.0.mean_ns_since(before.0);
        let there = after.1.mean_ns_since(before.1);
        here.zip(there)
            .map(|(here, there)| (here + there) / 2.0)
            .ok_or(CostsError::Lost("the program has not run"))
    }

    /// What the kernel counted in node 1: of the XDP program, and of the one that drops.
    fn there(&self) -> Result<(Runs, Runs), CostsError> {
        self.tell(Task::Count)?;
        match self.hear()? {
            Word::Counted { deposits, drops } => Ok((deposits, drops)),
            _ => Err(CostsError::Gone),
        }
    }

    /// Medians of what was noted in a conversation, of both sides.
    fn noted(&self, at: usize, asked: &mut Asked, clock_ns: f64) -> Result<Talk, CostsError> {
        self.tell(Task::AnswerNoted(at, ROUND_TRIPS))?;
        let here = asked.talker.ask_noted(asked.peer, ROUND_TRIPS)?;
        match self.hear()? {
            Word::Noted(there) => Ok(Talk::of(&here, &there, clock_ns)),
            _ => Err(CostsError::Gone),
        }
    }

    /// The send path's system calls by themselves, while the other CPU is as busy as in a conversation; and the mean
    /// time of the program that drops, ns.
    fn calls(&self, asked: &mut Asked, clock_ns: f64) -> Result<(Calls, f64), CostsError> {
        let Asked { refusing, dropping, through, .. } = asked;
        let sent =
            |socket: &mut BareSocket| paced(CALLS, clock_ns, socket, BareSocket::prepare, BareSocket::send);
        let over = Arc::new(AtomicBool::new(false));
        self.tell(Task::Wait(Arc::clone(&over)))?;
        let calls = Calls {
            refused: paced(CALLS, clock_ns, dropping, |_| {}, BareSocket::refused),
            none: sent(refusing),
            dropped: sent(dropping),
            through: paced(
                CALLS,
                clock_ns,
                through,
                |through| {
                    through.prepared();
                },
                |through| {
                    through.send();
                },
            ),
        };
        over.store(true, Ordering::Release);
        self.hear()?;
        let counting = Counting::begin()?;
        let before = self.there()?.1;
        sent(dropping);
        let after = self.there()?.1;
        drop(counting);
        let drop_counted = after.mean_ns_since(before).ok_or(CostsError::Lost("nothing was dropped"))?;
        Ok((calls, drop_counted))
    }

    /// Median round trip through bare UDP sockets, ns.
    fn bare(&self) -> Result<f64, CostsError> {
        self.tell(Task::Echo(ROUND_TRIPS))?;
        let mut times = Vec::with_capacity(ROUND_TRIPS);
        let mut message = [0x5a; MESSAGE_BYTES];
        let mut before = Instant::now();
        for _ in 0..ROUND_TRIPS {
            self.socket.send(&message).map_err(CostsError::failed("sending a datagram"))?;
            take(&self.socket, &mut message)?;
            let after = Instant::now();
            times.push((after - before).as_nanos() as u64);
            before = after;
        }
        self.hear()?;
        Ok(median_ns(&mut times))
    }

    /// Median of a system call on a UDP socket that is refused, ns.
    fn refused(&self) -> Result<f64, CostsError> {
        let mut socket = BareSocket::open("udp", &self.side.link(Wire::Drops)?, MESSAGE_BYTES)?;
        Ok(paced(CALLS, clock_ns(), &mut socket, |_| {}, BareSocket::refused))
    }
}

/// Medians of one conversation, ns.
struct Talk {
    /// From the application's call to the send path.
    send: f64,
    /// The send path, with everything that the kernel does.
    call: f64,
    /// From the look that found the record to the application's bytes.
    receive: f64,
    /// From that look to the send path's return, at the sender.
    late: f64,
}

impl Talk {
    /// Of what both sides noted. One reading of the clock is in each.
    fn of(here: &[Sample], there: &[Sample], clock_ns: f64) -> Talk {
        let median = |time: &dyn Fn(&Sample) -> Duration| {
            let mut times: Vec<u64> =
                here.iter().chain(there).map(|sample| time(sample).as_nanos() as u64).collect();
            (median_ns(&mut times) - clock_ns).max(0.0)
        };
        let there_late = here.iter().zip(there).map(|(here, there)| (here.left, there.seen));
        let here_late = here.iter().zip(there).map(|(here, there)| (there.left, here.seen));
        let late = there_late.chain(here_late).map(|(left, seen)| left.saturating_duration_since(seen));
        let mut late: Vec<u64> = late.map(|late| late.as_nanos() as u64).collect();
        Talk {
            send: median(&|sample| sample.entered.saturating_duration_since(sample.posted)),
            call: median(&|sample| sample.left - sample.entered),
            receive: median(&|sample| sample.taken - sample.seen),
            late: (median_ns(&mut late) - clock_ns).max(0.0),
        }
    }
}

/// Medians of system calls, ns.
struct Calls {
    /// Refused at once.
    refused: f64,
    /// Nobody takes the frame.
    none: f64,
    /// A program drops it.
    dropped: f64,
    /// The same through the send path.
    through: f64,
}

/// Answers datagrams.
fn echo(socket: &UdpSocket, count: usize) -> Result<(), CostsError> {
    let mut message = [0; MESSAGE_BYTES];
    for _ in 0..count {
        take(socket, &mut message)?;
        socket.send(&message).map_err(CostsError::failed("sending a datagram"))?;
    }
    Ok(())
}

/// Waits for a datagram, spinning.
fn take(socket: &UdpSocket, message: &mut [u8]) -> Result<(), CostsError> {
    let start = Instant::now();
    for look in 1_u32.. {
        match socket.recv(message) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(CostsError::failed("receiving a datagram")(error)),
        }
        if look.is_multiple_of(LOOKS) && start.elapsed() > ECHO_MAX {
            break;
        }
    }
    Err(CostsError::Lost("a datagram is lost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_noted() {
        let start = Instant::now();
        let at = |ns| start + Duration::from_nanos(ns);
        let sample = |posted, seen| Sample {
            posted: at(posted),
            entered: at(posted + 110),
            left: at(posted + 1010),
            seen: at(seen),
            taken: at(seen + 60),
        };
        // The other side sees the message 200 ns before the call that sent it returns, and so does this one.
        let (here, there) = (sample(0, 1910), sample(1100, 810));
        let talk = Talk::of(&[here], &[there], 10.0);
        assert_eq!((talk.send, talk.call, talk.receive), (100.0, 890.0, 50.0));
        assert_eq!(talk.late, 190.0);
    }
}
