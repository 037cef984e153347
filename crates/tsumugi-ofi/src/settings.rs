//! What users set by `FI_TSUMUGI_*` in the environment. `fi_info -e` shows the list.

use crate::abi::{FI_LOG_CORE, FI_LOG_WARN, FI_PARAM_STRING};
use crate::host::{Host, say};
use crate::limits::MESSAGE_BYTES_MAX;
use std::ffi::CStr;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;
use tsumugi::{Config, FaultOptions, Integrity, Networks, Policy, ReceiveChoice, SendChoice, Wait};

/// What is set, read when a domain is opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    networks: Option<Networks>,
    port: Option<Number<u16>>,
    job: Option<Number<u64>>,
    send: Option<SendChoice>,
    receive: Option<ReceiveChoice>,
    policy: Option<Policy>,
    wait: Option<Wait>,
    integrity: Option<Integrity>,
    peer_timeout: Option<Seconds>,
    connect_timeout: Option<Seconds>,
    close_timeout: Option<Seconds>,
    peers_max: Option<Number<u32>>,
    receive_bytes: Option<Bytes>,
    send_bytes: Option<Bytes>,
    queue_bytes: Option<Bytes>,
    datagram_bytes: Option<Number<u16>>,
    faults: Option<FaultOptions>,
    /// Whether a thread makes progress where the caller does not insist on doing it.
    pub(crate) progress: Option<Progress>,
}

/// Who makes progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Who calls.
    Manual,
    /// A thread of the domain's, too.
    Auto,
}

impl FromStr for Progress {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "manual" => Ok(Progress::Manual),
            "auto" => Ok(Progress::Auto),
            _ => Err("choose manual or auto"),
        }
    }
}

/// A time as users write it, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seconds(Duration);

impl FromStr for Seconds {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number: f64 =
            text.trim_end_matches('s').trim().parse().map_err(|_| "write seconds, as in 2.5")?;
        Duration::try_from_secs_f64(number).map(Seconds).map_err(|_| "write seconds, as in 2.5")
    }
}

/// A whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number<T>(T);

impl<T: TryFrom<u64>> FromStr for Number<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.trim().parse::<u64>().ok().and_then(|number| T::try_from(number).ok());
        let most = u64::MAX >> (64 - 8 * size_of::<T>());
        number.map(Number).ok_or_else(|| format!("write a whole number from 0 to {most}"))
    }
}

/// A size as users write it: bytes, or with `k`, `m` or `g` behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bytes(u64);

impl FromStr for Bytes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.trim_end_matches(['k', 'm', 'g']);
        let unit = match &lower[digits.len()..] {
            "" => 0,
            "k" => 10,
            "m" => 20,
            "g" => 30,
            _ => return Err("write bytes, as in 65536, 64k or 256m"),
        };
        let number: u64 = digits.parse().map_err(|_| "write bytes, as in 65536, 64k or 256m")?;
        number.checked_mul(1 << unit).map(Bytes).ok_or("it is more than there is")
    }
}

/// The settings: name, what it means, and where it goes.
macro_rules! settings {
    ($($name:literal $field:ident $help:literal;)*) => {
        const LIST: &[(&CStr, &str)] = &[$(($name, $help)),*];

        impl Settings {
            /// What is set now. A value that means nothing is told of and left out.
            pub(crate) fn read(host: &Host) -> Settings {
                let mut settings = Settings::default();
                $(settings.$field = parse(host, $name);)*
                settings
            }
        }
    };
}

settings! {
    c"networks" networks "NICs and networks that may be used: names, addresses and networks (10.1.0.0/16), separated by commas, with ! before \
        what may not (default: TSUMUGI_NETWORKS, or all but those that lead to this host alone)";
    c"port" port "UDP port of the first endpoint of a process, if nobody has it (default: any that is free)";
    c"job" job "number of the job; endpoints of different jobs refuse each other (default: 0)";
    c"send_path" send "what sends: auto, udp, packet or xsk (default: auto, the quickest that is permitted)";
    c"receive_path" receive "what receives: auto, xdp (the program that `tsumugi up` has attached to the NIC) or socket (default: auto, xdp \
        where it is available)";
    c"policy" policy "how packets are spread over several NICs, see `tsumugi --help` (default: adaptive)";
    c"wait" wait "how a call waits that blocks: spin, adaptive, block or busy-poll (default: adaptive)";
    c"integrity" integrity "what tells that a message was altered on its way: crc32c, or wire, Ethernet's and UDP's own, as with TCP; on both sides \
        (default: crc32c)";
    c"peer_timeout" peer_timeout "seconds that a peer's host may be silent before its process counts as dead (default: 180)";
    c"connect_timeout" connect_timeout "seconds that a peer which has never answered is waited for (default: 30)";
    c"close_timeout" close_timeout "seconds that closing an endpoint waits for what peers have not acknowledged (default: 5)";
    c"peers_max" peers_max "most peers of an endpoint (default: 1024)";
    c"receive_bytes" receive_bytes "bytes of messages that nobody has received yet before their senders wait (default: 256m)";
    c"send_bytes" send_bytes "bytes that may wait to be sent to one peer (default: 4m)";
    c"queue_bytes" queue_bytes "bytes of the receive queue, a power of two (default: 1m)";
    c"datagram_bytes" datagram_bytes "longest datagram payload (default: what the NIC's MTU permits)";
    c"faults" faults "faults to inject into what is sent, for tests: loss=1%,dup=1%,reorder=5%,corrupt=0.1%,delay=50us,seed=7 (default: \
        none)";
    c"progress" progress "who makes progress where the program does not ask for either: manual (its calls) or auto (a thread, too) \
        (default: manual)";
}

/// Tells the host what can be set.
pub(crate) fn define(host: &Host) {
    for (name, help) in LIST {
        host.define(name, FI_PARAM_STRING, help);
    }
}

fn parse<T: FromStr<Err: Display>>(host: &Host, name: &CStr) -> Option<T> {
    let text = host.text(name)?;
    match text.trim().parse() {
        Ok(value) => Some(value),
        Err(error) => {
            let name = name.to_string_lossy().to_uppercase();
            say!(FI_LOG_WARN, FI_LOG_CORE, "FI_TSUMUGI_{name}={text} is not used: {error}");
            None
        }
    }
}

impl Settings {
    /// What an endpoint is opened with, but for its address.
    pub(crate) fn config(&self) -> Config {
        fn set<T>(field: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *field = value;
            }
        }
        // The MPIs take a message that is too long for a fault of their own.
        let mut config = Config::default().message_bytes_max(MESSAGE_BYTES_MAX).faults(self.faults);
        set(&mut config.port, self.port.map(|port| port.0));
        set(&mut config.job, self.job.map(|job| job.0));
        set(&mut config.peers_max, self.peers_max.map(|peers| peers.0));
        set(&mut config.wait, self.wait);
        set(&mut config.integrity, self.integrity);
        set(&mut config.peer_timeout, self.peer_timeout.map(|time| time.0));
        set(&mut config.connect_timeout, self.connect_timeout.map(|time| time.0));
        set(&mut config.linger, self.close_timeout.map(|time| time.0));
        set(&mut config.queue_bytes, self.queue_bytes.map(|bytes| bytes.0));
        set(&mut config.receive_bytes, self.receive_bytes.map(|bytes| bytes.0));
        set(&mut config.send_bytes, self.send_bytes.map(|bytes| bytes.0));
        set(&mut config.send, self.send);
        set(&mut config.receive, self.receive);
        set(&mut config.policy, self.policy.map(Some));
        set(&mut config.networks, self.networks.clone().map(Some));
        set(&mut config.datagram_bytes, self.datagram_bytes.map(|bytes| Some(bytes.0)));
        config
    }

    /// Which NICs and networks may be used.
    pub(crate) fn networks(&self) -> Networks {
        self.networks.clone().unwrap_or_else(|| Networks::from_environment().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_as_people_write_them() {
        for (text, bytes) in [("0", 0), ("65536", 65536), ("64k", 64 << 10), ("3M", 3 << 20), ("1g", 1 << 30)]
        {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "k", "-1", "1kk", "1.5m", "99999999999g"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        assert_eq!("2.5".parse(), Ok(Seconds(Duration::from_millis(2500))));
        assert_eq!(" 7411".parse(), Ok(Number(7411u16)));
        for text in ["", "abc", "-1", "65536", "0x10"] {
            let error = text.parse::<Number<u16>>().unwrap_err();
            assert_eq!(error, "write a whole number from 0 to 65535", "{text}");
        }
        assert_eq!(u64::MAX.to_string().parse(), Ok(Number(u64::MAX)));
        for text in ["", "soon", "-1", "inf", "nan"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
    }
}
