//! Messages on a channel: in order.

use super::{Part, Site, Wrong, length, payload, text};
use crate::random::Random;
use tsumugi::{Channel, SendError};

pub(super) struct Letters {
    channel: Channel,
    sent: Vec<u64>,
    taken: Vec<u64>,
}

impl Letters {
    pub(super) fn open(site: &Site, hosts: usize) -> Result<Letters, Wrong> {
        let channel = site.endpoint.channel(1).map_err(text)?;
        Ok(Letters { channel, sent: vec![0; hosts], taken: vec![0; hosts] })
    }
}

impl Part for Letters {
    fn act(&mut self, random: &mut Random, site: &Site) -> Result<(), Wrong> {
        let to = site.another(random);
        let letter = payload(site.me, to, self.sent[to], length(random));
        match self.channel.post(site.peer(to), &letter) {
            Ok(_) => self.sent[to] += 1,
            Err(SendError::WouldBlock) => {}
            Err(error) => return Err(format!("a letter: {error}")),
        }
        Ok(())
    }

    fn poll(&mut self, site: &Site, _: bool) -> Result<(), Wrong> {
        while let Some(letter) = self.channel.try_receive().map_err(text)? {
            let from = site.host(letter.source());
            let number = self.taken[from];
            if letter[..] != payload(from, site.me, number, letter.len()) {
                return Err(format!("letter {number} from host {from} is not what was sent"));
            }
            self.taken[from] += 1;
        }
        Ok(())
    }

    fn sent_to(&self, host: usize) -> u64 {
        self.sent[host]
    }

    fn taken_from(&self, host: usize) -> u64 {
        self.taken[host]
    }

    fn is_quiet(&self) -> bool {
        true
    }
}
