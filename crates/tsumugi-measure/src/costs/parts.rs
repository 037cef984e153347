//! The parts that a message's one-way time is made of, and what they come to together.

use serde::{Deserialize, Serialize};

use crate::row::rounded;
use crate::statistics::OverRounds;

/// How far the sum of the parts may be from the time measured in one piece, as a share of it.
pub(crate) const TOLERANCE: f64 = 0.1;

/// A part of a message's time from one application to another, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Part {
    /// From the application's call to the system call.
    ///
    /// In a conversation, from the call to where the library hands the packet to its send path; and of the send path
    /// what sending through it takes more than the bare system call with the same bytes, to a NIC whose peer drops
    /// them.
    /// Does not contain what the library still does after the system call.
    LibrarySend,
    /// Into the kernel and out again.
    ///
    /// The system call that sends, on a socket of the same kind, refused before anything is done. Contains finding
    /// the socket and copying its address.
    SystemCall,
    /// The socket layer, a buffer for the frame, the copy, the NIC driver's transmit.
    ///
    /// What sending the same bytes takes more than the refused call, to a NIC whose peer takes no frame of that
    /// length: veth asks its peer last of all. Contains giving the buffer back.
    DriverSend,
    /// The receiving NIC's interrupt work: its poll begins, the frame is made fit for a program, and afterwards its
    /// memory is given back and the poll ends.
    ///
    /// What sending takes more when the peer takes the frame and a program drops it at once; on a veth pair the
    /// sender's CPU does that, within the system call. Contains the few instructions of that program.
    Softirq,
    /// The protocol: the XDP program finds the flow, updates its receive bitmap, deposits and
    /// acknowledges.
    ///
    /// The kernel's statistics of the program's runs in a conversation of its own (they cost time themselves), less
    /// those of the program that drops. Stores that are still on their way to lines that the receiver has when it
    /// ends are not in it: [`Costs::conversing`] has them.
    Program,
    /// On a veth pair there is no wire: what remains is moving a cache line from one CPU to the other.
    ///
    /// Half of the time that two threads on the two CPUs take to answer each other through two cache lines.
    Wire,
    /// From the record in the queue to the application's bytes.
    ///
    /// In a conversation, from the look that found the record to where the application has copied the bytes and
    /// given the message back. Contains the other cache lines of the record, the comparison of the body's CRC, and
    /// what the library does about acknowledgements.
    LibraryReceive,
}

impl Part {
    pub(crate) const ALL: [Part; 7] = [
        Part::LibrarySend,
        Part::SystemCall,
        Part::DriverSend,
        Part::Softirq,
        Part::Program,
        Part::Wire,
        Part::LibraryReceive,
    ];

    /// As it stands in a table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Part::LibrarySend => "library, sending",
            Part::SystemCall => "system call",
            Part::DriverSend => "driver, sending",
            Part::Softirq => "softirq, receiving",
            Part::Program => "program (protocol)",
            Part::Wire => "wire (cache line)",
            Part::LibraryReceive => "library, receiving",
        }
    }
}

/// What one round measured, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Round {
    /// In the order of [`Part::ALL`].
    pub(super) parts: [f64; Part::ALL.len()],
    /// See [`Costs::ahead`].
    pub(super) ahead: f64,
    /// See [`Costs::call`].
    pub(super) call: f64,
    /// See [`Costs::conversing`].
    pub(super) conversing: f64,
    pub(super) round_trip: f64,
}

/// A time over the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// Median, ns.
    pub(crate) ns: f64,
    /// (largest − smallest) / median, where there is more than one round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spread: Option<f64>,
}

impl Figure {
    /// Over the rounds; zero where there are none.
    pub(super) fn of(rounds: impl IntoIterator<Item = f64>) -> Figure {
        OverRounds::of(rounds).map_or(Figure::default(), |over| Figure {
            ns: rounded(over.median),
            spread: over.spread.map(rounded),
        })
    }
}

/// A part's cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartCost {
    pub(crate) part: Part,
    #[serde(flatten)]
    pub(crate) figure: Figure,
}

/// Where the time of a message goes with one send path and the XDP receive path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Costs {
    pub(crate) send: String,
    pub(crate) receive: String,
    /// Bytes of the message.
    pub(crate) size_bytes: u64,
    /// How many rounds the medians are over.
    pub(crate) rounds: u32,
    /// All of them, one way.
    pub(crate) parts: Vec<PartCost>,
    /// How long the sender is still in the system call when the receiver can see the record: the end of the program,
    /// of the softirq and of the call. It is in the parts, and not in the message's one-way time.
    pub(crate) ahead: Figure,
    /// What the parts in the middle were together in the conversation: the send path and its system call, with
    /// everything that the kernel does in it. Measured in one piece.
    pub(crate) call: Figure,
    /// What the send path's call takes more in a conversation than when the far program drops the same frame at once:
    /// the program, waiting for cache lines that the receiver has, also after the program, and all that is colder in a
    /// conversation than in a row of equal calls. Not one of the parts.
    pub(crate) conversing: Figure,
    /// What the message and its answer took together, without anything else being measured.
    pub(crate) round_trip: Figure,
    /// The parts, less `ahead`.
    pub(crate) sum_ns: f64,
    /// Half of the round trip.
    pub(crate) one_way_ns: f64,
    /// (sum − one way) / one way.
    pub(crate) difference: f64,
    /// Whether that is within a tenth.
    pub(crate) adds_up: bool,
}

impl Costs {
    pub(super) fn of(send_path: &str, size_bytes: u64, rounds: &[Round]) -> Costs {
        let figure = |of: &dyn Fn(&Round) -> f64| Figure::of(rounds.iter().map(of));
        let parts = Part::ALL.into_iter().enumerate();
        let parts: Vec<PartCost> =
            parts.map(|(at, part)| PartCost { part, figure: figure(&|round| round.parts[at]) }).collect();
        let (ahead, round_trip) = (figure(&|round| round.ahead), figure(&|round| round.round_trip));
        // Of the medians, so that whoever adds up the column finds it.
        let sum_ns = rounded(parts.iter().map(|cost| cost.figure.ns).sum::<f64>() - ahead.ns);
        let one_way_ns = rounded(round_trip.ns / 2.0);
        let difference = if one_way_ns > 0.0 { rounded((sum_ns - one_way_ns) / one_way_ns) } else { 1.0 };
        Costs {
            send: send_path.to_owned(),
            receive: "xdp".to_owned(),
            size_bytes,
            rounds: rounds.len() as u32,
            parts,
            ahead,
            call: figure(&|round| round.call),
            conversing: figure(&|round| round.conversing),
            round_trip,
            sum_ns,
            one_way_ns,
            difference,
            adds_up: difference.abs() <= TOLERANCE,
        }
    }
}

/// The same through bare UDP sockets that spin, through NICs without a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bare {
    pub(crate) round_trip: Figure,
    /// One system call, as [`Part::SystemCall`]; a message has two, one that sends and one that receives.
    pub(crate) system_call: Figure,
    /// Half of the round trip.
    pub(crate) one_way_ns: f64,
    /// The rest of it: socket layers, IP, UDP, drivers, softirq and the looks in between.
    pub(crate) stack_ns: f64,
}

impl Bare {
    /// From round trips and system calls of each round, ns.
    pub(super) fn of(round_trips: &[f64], system_calls: &[f64]) -> Bare {
        let round_trip = Figure::of(round_trips.iter().copied());
        let system_call = Figure::of(system_calls.iter().copied());
        let one_way_ns = rounded(round_trip.ns / 2.0);
        Bare { round_trip, system_call, one_way_ns, stack_ns: rounded(one_way_ns - 2.0 * system_call.ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(part: f64, ahead: f64, round_trip: f64) -> Round {
        Round { parts: [part; Part::ALL.len()], ahead, call: 4.0 * part, conversing: 2.0 * part, round_trip }
    }

    #[test]
    fn the_sum_is_that_of_the_medians_less_what_is_ahead() {
        let rounds = [round(100.0, 50.0, 1300.0), round(110.0, 60.0, 1400.0), round(900.0, 55.0, 1360.0)];
        let costs = Costs::of("packet", 64, &rounds);
        assert_eq!(costs.parts.len(), Part::ALL.len());
        assert!(costs.parts.iter().all(|cost| cost.figure.ns == 110.0), "one bad round is not the median");
        assert_eq!(costs.sum_ns, 7.0 * 110.0 - 55.0);
        assert_eq!(costs.one_way_ns, 680.0);
        assert!((costs.difference - 35.0 / 680.0).abs() < 1e-3 && costs.adds_up, "{costs:?}");
        assert!(costs.parts[0].figure.spread > Some(7.0));
    }

    #[test]
    fn more_than_a_tenth_does_not_add_up() {
        let costs = |round_trip| Costs::of("packet", 64, &[round(100.0, 0.0, round_trip)]);
        assert!(costs(1400.0).adds_up && costs(1280.0).adds_up && costs(1550.0).adds_up);
        assert!(!costs(1260.0).adds_up && !costs(1570.0).adds_up);
        assert!(!Costs::of("packet", 64, &[]).adds_up, "nothing was measured");
    }

    #[test]
    fn a_bare_socket_is_two_system_calls_and_the_rest() {
        let bare = Bare::of(&[4000.0, 4100.0, 5000.0], &[100.0, 101.0, 99.0]);
        assert_eq!((bare.one_way_ns, bare.stack_ns), (2050.0, 1850.0));
    }

    #[test]
    fn parts_come_back_from_json() {
        let costs = Costs::of("packet", 64, &[round(100.0, 50.0, 1300.0)]);
        let text = serde_json::to_string(&costs).expect("JSON");
        assert!(text.contains(r#"{"part":"library_send","ns":100.0}"#), "{text}");
        assert_eq!(serde_json::from_str::<Costs>(&text).expect("the same"), costs);
    }
}
