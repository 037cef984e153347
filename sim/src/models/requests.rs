//! Active messages: requests in order, each answered once.

use super::{Part, Site, Wrong, length, payload, text};
use crate::random::Random;
use tsumugi::active_message::{ActiveMessageOptions, ActiveMessages, RequestError};

#[derive(Default)]
struct Book {
    me: usize,
    taken: Vec<u64>,
    answered: u64,
    wrong: Option<Wrong>,
}

pub(super) struct Requests {
    port: ActiveMessages<Book>,
    sent: Vec<u64>,
}

impl Requests {
    pub(super) fn open(site: &Site, hosts: usize) -> Result<Requests, Wrong> {
        let book = Book { me: site.me, taken: vec![0; hosts], ..Book::default() };
        let options = ActiveMessageOptions::default().tokens(4);
        let mut port = ActiveMessages::open(&site.endpoint, 2, options, book).map_err(text)?;
        port.register("take", |book, request, reply| {
            let [number, from, ..] = request.words;
            let from = from as usize;
            if number != book.taken[from]
                || request.data != payload(from, book.me, number, request.data.len())
            {
                book.wrong =
                    Some(format!("request {number} of host {from} is not the next, or not what was sent"));
            }
            book.taken[from] += 1;
            // One in three is answered with nothing, and one with its data.
            let sent = match number % 3 {
                0 => return,
                1 => reply.send([3 * number, 0, 0, 0]),
                _ => reply.send_bulk([3 * number, 0, 0, 0], request.data),
            };
            if let Err(error) = sent {
                book.wrong = Some(error.to_string());
            }
        })
        .map_err(text)?;
        Ok(Requests { port, sent: vec![0; hosts] })
    }
}

impl Part for Requests {
    fn act(&mut self, random: &mut Random, site: &Site) -> Result<(), Wrong> {
        let to = site.another(random);
        let (me, number, bytes) = (site.me, self.sent[to], length(random));
        let data = payload(me, to, number, bytes);
        let asked = self.port.try_request_bulk(
            site.peer(to),
            "take",
            [number, me as u64, 0, 0],
            &data,
            move |book: &mut Book, answer| match answer {
                Ok(answer) => {
                    let word = if number % 3 == 0 { 0 } else { 3 * number };
                    let data = if number % 3 == 2 { payload(me, to, number, bytes) } else { Vec::new() };
                    if answer.words[0] != word || answer.data != data {
                        book.wrong = Some(format!("the answer of host {to} to request {number} is another"));
                    }
                    book.answered += 1;
                }
                Err(error) => book.wrong = Some(format!("request {number} to host {to}: {error}")),
            },
        );
        match asked {
            Ok(()) => self.sent[to] += 1,
            Err(RequestError::WouldBlock) => {}
            Err(error) => return Err(format!("a request: {error}")),
        }
        Ok(())
    }

    fn poll(&mut self, _: &Site, _: bool) -> Result<(), Wrong> {
        self.port.poll().map_err(text)?;
        self.port.state_mut().wrong.take().map_or(Ok(()), Err)
    }

    fn sent_to(&self, host: usize) -> u64 {
        self.sent[host]
    }

    fn taken_from(&self, host: usize) -> u64 {
        self.port.state().taken[host]
    }

    fn is_quiet(&self) -> bool {
        self.port.outstanding() == 0 && self.port.state().answered == self.sent.iter().sum::<u64>()
    }
}
