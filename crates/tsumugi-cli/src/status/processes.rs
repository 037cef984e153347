//! The processes that have endpoints, and what those show.

use super::doing::Doing;
use super::limit;
use super::rates::Rates;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tsumugi::snapshot::Snapshot;
use tsumugi_rail::status_page::{self, Reading, Watched};
use tsumugi_rail::xdp::{self, Pins, PortStatus};

/// How long an endpoint that was never asked before may take to answer.
const ANSWER_TIME: Duration = Duration::from_millis(50);
/// How often its answer is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Time between two searches for new processes: each reads all of `/proc`.
const SEARCH_EVERY: Duration = Duration::from_secs(2);

/// One endpoint of a process, as it is now.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    /// Number of the process.
    pub(crate) pid: u32,
    /// Its command with arguments.
    pub(crate) command: String,
    /// Its user.
    pub(crate) uid: u32,
    /// Inode of its network namespace, and whether that is ours.
    pub(crate) network_namespace: u64,
    pub(crate) is_in_our_network_namespace: bool,
    /// What the program is doing.
    pub(crate) doing: Doing,
    /// How old what the endpoint shows is, s; until then it had made its last call, give or take a second.
    pub(crate) age_s: f64,
    /// CPU time of the process, all threads, per time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpus: Option<f64>,
    /// What limits it now, in a sentence.
    pub(crate) limit: String,
    /// Changes since the look before, per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rates: Option<Rates>,
    /// What it shows.
    pub(crate) endpoint: Snapshot,
}

impl View {
    /// The command without its arguments and folder.
    pub(crate) fn program(&self) -> &str {
        let first = self.command.split(' ').next().unwrap_or_default();
        first.rsplit('/').next().unwrap_or(first)
    }

    /// The endpoint's port.
    pub(crate) fn port(&self) -> u16 {
        self.endpoint.report.address.port()
    }

    /// Bytes sent and received a second.
    pub(crate) fn traffic(&self) -> f64 {
        self.rates.as_ref().map_or(0.0, |rates| rates.bytes_sent + rates.bytes_received)
    }
}

/// What was found at a look.
struct Before {
    snapshot: Snapshot,
    /// Its verdicts are those of this moment, not of when the endpoint has shown them.
    is_live: bool,
    cpu_s: f64,
    at: Instant,
}

/// Looks at all endpoints of this host that the caller may look at, again and again.
pub(crate) struct Watcher {
    pages: Vec<Watched>,
    before: HashMap<u64, Before>,
    searched_at: Option<Instant>,
    ticks_per_s: f64,
    our_namespace: u64,
    /// Where the endpoints of the XDP receive path are found.
    pins: Option<Pins>,
}

impl Watcher {
    pub(crate) fn new() -> Watcher {
        Watcher {
            pages: Vec::new(),
            before: HashMap::new(),
            searched_at: None,
            ticks_per_s: rustix::param::clock_ticks_per_second() as f64,
            our_namespace: network_namespace("self"),
            pins: Pins::here().ok(),
        }
    }

    /// Looks for processes that are new, forgets those that are gone, and asks all of them to show what they do.
    fn search(&mut self) -> bool {
        if self.searched_at.is_some_and(|at| at.elapsed() < SEARCH_EVERY) {
            self.pages.retain(|page| Path::new(&format!("/proc/{}", page.process())).exists());
            return false;
        }
        self.searched_at = Some(Instant::now());
        let mut known: HashMap<u64, Watched> =
            std::mem::take(&mut self.pages).into_iter().map(|page| (page.inode(), page)).collect();
        let mut has_new = false;
        for mut page in status_page::find() {
            if let Some(old) = known.remove(&page.inode()) {
                self.pages.push(old);
            } else {
                page.ask();
                has_new = true;
                self.pages.push(page);
            }
        }
        self.before.retain(|inode, _| self.pages.iter().any(|page| page.inode() == *inode));
        has_new
    }

    /// Looks. What was found before makes rates of it.
    pub(crate) fn look(&mut self) -> Vec<View> {
        if self.search() {
            let until = Instant::now() + ANSWER_TIME;
            let all_fresh = |pages: &[Watched]| {
                pages.iter().all(|page| page.read().is_some_and(|reading| reading.is_fresh))
            };
            while !all_fresh(&self.pages) && Instant::now() < until {
                std::thread::sleep(LOOK_EVERY);
            }
        }
        let by_xdp = self.pins.as_ref().and_then(|pins| xdp::ports(pins).ok()).unwrap_or_default();
        let mut views: Vec<View> = Vec::new();
        for page in &mut self.pages {
            let Some(reading) = page.read() else { continue };
            // For the next look.
            page.ask();
            // What another version wrote otherwise cannot be shown.
            let Some(mut snapshot) = parsed(&reading.text) else { continue };
            let is_live = add_live_counters(&mut snapshot, &by_xdp);
            let Some(process) = Process::read(page.process(), self.ticks_per_s) else { continue };
            let now = Before { snapshot, is_live, cpu_s: process.cpu_s, at: Instant::now() };
            let before = self.before.get(&page.inode());
            let view = view(page.process(), &process, &reading, &now, before, self.our_namespace);
            views.push(view);
            self.before.insert(page.inode(), now);
        }
        views
    }
}

/// What the XDP program has counted for an endpoint until now, though its process makes no call. Whether that is known.
fn add_live_counters(snapshot: &mut Snapshot, by_xdp: &[PortStatus]) -> bool {
    let Some(port) = by_xdp.iter().find(|port| port.claimed && port.epoch == snapshot.epoch) else {
        return false;
    };
    snapshot.counters.extend(port.counters.iter().map(|(name, value)| ((*name).to_owned(), *value)));
    !port.counters.is_empty()
}

/// What a page says. Another user may have written it, so no text of it may talk to our terminal.
fn parsed(text: &[u8]) -> Option<Snapshot> {
    let mut value: Value = serde_json::from_slice(text).ok()?;
    clean(&mut value);
    serde_json::from_value(value).ok()
}

fn clean(value: &mut Value) {
    match value {
        Value::String(text) => *text = plain(text),
        Value::Array(values) => values.iter_mut().for_each(clean),
        Value::Object(pairs) => {
            let all = std::mem::take(pairs).into_iter().map(|(name, mut value)| {
                clean(&mut value);
                (plain(&name), value)
            });
            *pairs = all.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A text without control characters.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn view(
    pid: u32,
    process: &Process,
    reading: &Reading,
    now: &Before,
    before: Option<&Before>,
    our_namespace: u64,
) -> View {
    let endpoint = now.snapshot.clone();
    let cpus = before.map(|before| {
        (now.cpu_s - before.cpu_s).max(0.0) / now.at.duration_since(before.at).as_secs_f64().max(1e-3)
    });
    let age_s = endpoint.age().as_secs_f64();
    let doing = Doing::of(reading, process.state, endpoint.in_event_loop);
    // Nothing new was shown: nothing has changed, as far as anybody knows.
    let rates = before.map(|before| {
        let rates = Rates::between(&before.snapshot, &endpoint);
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        let is_live = before.is_live && now.is_live;
        if is_live { rates.with_verdicts_of(&before.snapshot, &endpoint, seconds) } else { rates }
    });
    let limit = limit::sentence(&endpoint, rates.as_ref(), doing, cpus, age_s);
    let network_namespace = network_namespace(&pid.to_string());
    View {
        pid,
        command: process.command.clone(),
        uid: process.uid,
        network_namespace,
        is_in_our_network_namespace: network_namespace == our_namespace,
        doing,
        age_s,
        cpus,
        limit,
        rates,
        endpoint,
    }
}

/// What the kernel says of a process.
struct Process {
    command: String,
    uid: u32,
    /// As in proc_pid_stat(5).
    state: char,
    cpu_s: f64,
}

impl Process {
    fn read(pid: u32, ticks_per_s: f64) -> Option<Process> {
        let folder = format!("/proc/{pid}");
        let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
        // The name, which may have anything in it, ends with the last parenthesis.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field)?.parse::<f64>().ok();
        let arguments = fs::read(format!("{folder}/cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments);
        let words: Vec<&str> = arguments.split('\0').filter(|word| !word.is_empty()).collect();
        Some(Process {
            command: plain(&words.join(" ")),
            uid: fs::metadata(&folder).ok()?.uid(),
            state: fields.first()?.chars().next()?,
            cpu_s: (ticks(11)? + ticks(12)?) / ticks_per_s,
        })
    }
}

fn network_namespace(process: &str) -> u64 {
    fs::metadata(format!("/proc/{process}/ns/net")).map_or(0, |data| data.ino())
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn what_others_write_does_not_talk_to_the_terminal() {
        let mut snapshot = sample::snapshot(1);
        snapshot.peers[0].name = "n1\u{1b}]0;title\u{7}\nn2".into();
        snapshot.counters.insert("a\u{1b}b".into(), 1);
        let parsed = parsed(&serde_json::to_vec(&snapshot).expect("JSON")).expect("a snapshot");
        assert_eq!(parsed.peers[0].name, "n1?]0;title??n2");
        assert_eq!(parsed.counters["a?b"], 1);
    }

    #[test]
    fn what_is_no_snapshot_is_passed_over() {
        for text in ["", "{", "[]", "null", "{\"version\":\"9\"}"] {
            assert_eq!(parsed(text.as_bytes()), None, "{text}");
        }
    }
}
