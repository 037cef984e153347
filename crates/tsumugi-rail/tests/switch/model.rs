//! What the switch's program must do, said once more in Rust.

use std::collections::{HashMap, HashSet};
use tsumugi_rail::ether::Mac;
use tsumugi_rail::switch::{
    Hook, IDLE_S, LONG_S, Outcome, Place, PortEntry, Rules, SHOW_MAX_S, SHOW_S, place_key,
};
use tsumugi_rail::xdp::Action;

/// The switch.
pub(crate) struct Model {
    rules: Rules,
    hook: Hook,
    ports: HashMap<u32, PortEntry>,
    places: HashMap<u64, Place>,
    own: HashSet<Mac>,
    /// By port: the second, and what was to be flooded in it.
    floods: HashMap<u32, (u32, u32)>,
    counts: HashMap<(u32, Outcome), u64>,
}

/// What is read of a frame; `None`: its tag is cut off.
fn parse(frame: &[u8]) -> Option<(Mac, Mac, u16)> {
    let (destination, source) = (frame[..6].try_into().unwrap(), frame[6..12].try_into().unwrap());
    let vlan = match frame[12..14] {
        [0x81, 0x00] | [0x88, 0xa8] => {
            u16::from_be_bytes(frame.get(14..18)?[..2].try_into().unwrap()) & 0xfff
        }
        _ => 0,
    };
    Some((destination, source, vlan))
}

fn is_group(address: Mac) -> bool {
    address[0] & 1 != 0
}

impl Model {
    pub(crate) fn new(rules: Rules, hook: Hook) -> Model {
        Model {
            rules,
            hook,
            ports: HashMap::new(),
            places: HashMap::new(),
            own: HashSet::new(),
            floods: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    pub(crate) fn enter(&mut self, port: PortEntry) {
        self.ports.insert(port.number, port);
    }

    pub(crate) fn own(&mut self, address: Mac) {
        self.own.insert(address);
    }

    pub(crate) fn place(&self, key: u64) -> Option<Place> {
        self.places.get(&key).copied()
    }

    pub(crate) fn counts(&self, port: u32) -> tsumugi_rail::switch::Counts {
        let of = |outcome: &Outcome| self.counts.get(&(port, *outcome)).copied().unwrap_or_default();
        Outcome::ALL.iter().map(|outcome| (*outcome, of(outcome))).collect()
    }

    /// What the addresses of a frame are known by.
    pub(crate) fn keys_of(&self, port: u32, frame: &[u8]) -> Vec<u64> {
        let network = self.ports[&port].network;
        let keys = parse(frame).map(|(destination, source, vlan)| {
            [destination, source].map(|address| place_key(network, vlan, address))
        });
        keys.into_iter().flatten().collect()
    }

    /// Takes a frame that came in by a port.
    pub(crate) fn take(&mut self, port: u32, frame: &[u8], is_long: bool, now_s: u32) -> (Action, Outcome) {
        let outcome = self.outcome(port, frame, is_long, now_s);
        *self.counts.entry((port, outcome)).or_default() += 1;
        let action = match outcome {
            Outcome::Forwarded => Action::Redirect,
            Outcome::Filtered | Outcome::Storm | Outcome::Malformed => Action::Drop,
            _ => Action::Pass,
        };
        (action, outcome)
    }

    fn outcome(&mut self, port: u32, frame: &[u8], is_long: bool, now_s: u32) -> Outcome {
        let Some((destination, source, vlan)) = parse(frame) else { return Outcome::Malformed };
        let from = self.ports[&port];
        let key = |address| place_key(from.network, vlan, address);
        let ago = |then: u32| now_s.wrapping_sub(then);

        let known = self.places.get_mut(&key(source));
        let known = known.filter(|place| place.port == port && ago(place.seen_s) < self.rules.ageing_s);
        let (is_shown, sends_long) = if let Some(place) = known {
            let is_due = ago(place.shown_s) >= SHOW_S && ago(place.seen_s) >= IDLE_S;
            let is_shown = is_due || ago(place.shown_s) >= SHOW_MAX_S;
            if is_shown {
                place.shown_s = now_s;
            }
            place.seen_s = now_s;
            if is_long {
                place.long_s = now_s;
            }
            (is_shown, ago(place.long_s) < LONG_S)
        } else {
            if is_group(source) || source == [0; 6] || self.own.contains(&source) {
                return Outcome::Malformed;
            }
            let long_s = if is_long { now_s } else { now_s.wrapping_sub(LONG_S) };
            self.places.insert(key(source), Place { port, seen_s: now_s, shown_s: now_s, long_s });
            (true, is_long)
        };

        let place = self.places.get(&key(destination));
        let place = place.filter(|place| !is_group(destination) && ago(place.seen_s) < self.rules.ageing_s);
        let Some(place) = place else {
            if self.own.contains(&destination) {
                return Outcome::Local;
            }
            let (second, count) = self.floods.entry(port).or_insert((now_s, 0));
            if *second != now_s {
                (*second, *count) = (now_s, 0);
            }
            *count += 1;
            return if *count <= self.rules.floods_per_s { Outcome::Flooded } else { Outcome::Storm };
        };
        let to = self.ports[&place.port];
        if is_shown {
            Outcome::Shown
        } else if place.port == port {
            Outcome::Filtered
        } else if to.nic == 0
            || frame.len() > to.frame_bytes_max as usize
            || (self.hook != Hook::Tc && is_long)
            || (self.hook == Hook::Native && sends_long)
            || (self.hook != Hook::Tc && from.is_virtual == 1 && to.is_virtual == 0)
        {
            Outcome::Bridged
        } else {
            Outcome::Forwarded
        }
    }
}
